"""The record table of a run as a file, for `genbench score` and for everyone else."""

from __future__ import annotations

import os
from pathlib import Path

from genbench.display.csv_text import table_text
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.runs.execute import RunResult

__all__ = ["check_table_path", "write_table"]


def check_table_path(path: Path) -> None:
    """Complain about a table that could not be written, before anything is computed."""
    if path.suffix.lower() != ".csv":
        raise UserError(f"--table {path}: the table is CSV; give a file that ends in .csv")
    if not path.parent.is_dir():
        raise UserError(f"--table {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--table {path} cannot be written; choose another place")


def write_table(result: RunResult, store: Path, asked: Path | None) -> Path | None:
    """Write the table, all of it or none, where it was asked for or else into the store; returns where.

    None for suites whose truths are no such table.
    """
    rows = result.evidence.table(result.measures)
    if rows is None:
        return None
    if not rows:
        raise UserError("no network of this run was judged, so there is no record table")
    path = asked or store / "tables" / f"{result.plan.suite.file_name}.csv"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, table_text(rows))
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None
    return path
