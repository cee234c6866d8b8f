"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["common_options", "parse_memory", "store_option"]

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


def parse_memory(text: str | None) -> int:
    """A size such as 4G or 500M in bytes; None is half the machine's memory."""
    from genbench.errors import UserError

    if text is None:
        import psutil

        return int(psutil.virtual_memory().total // 2)
    number, unit = text[:-1], text[-1:].upper()
    scale = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(unit)
    if scale is None:
        number, scale = text, 1
    try:
        size = int(float(number) * scale)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UserError(f"--memory {text!r} is not a size; write 500M or 4G")
    return size
