"""Options that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["common_options", "debugging", "store_option"]

F = TypeVar("F", bound=Callable[..., Any])


def debugging() -> bool:
    """Whether whoever runs a command wants to see behind its one-line errors."""
    return "--debug" in sys.argv or bool(os.environ.get("GENBENCH_DEBUG"))


def common_options(function: F) -> F:
    """Add `--json` (argument `as_json`) and `--debug` (read by `genbench.cli.main`)."""
    function = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show tracebacks, and what measures print."
    )(function)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def store_option(function: F) -> F:
    """Add `--store`, the folder of results."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path),
        default=Path(".genbench"),
        envvar="GENBENCH_STORE",
        show_default=True,
        help="Folder that keeps every result.",
    )(function)
