"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["common_options", "store_option"]

F = TypeVar("F", bound=Callable[..., Any])


def common_options(function: F) -> F:
    """Add `--json` (argument `as_json`) and `--debug` (read by `genbench.cli.main`)."""
    function = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show tracebacks instead of one-line errors."
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
