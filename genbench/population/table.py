"""The record table of a population: one row per network, for `genbench score` and for everyone else.

Columns: `hp.…` (what the grid varies), `seed`, `gap`, `gap_ood_…`, `test_error`, `test_size`, `converged`,
what is known of the training, and `complexity.…`, one per measure.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.run.runs import RunReport
from genbench.suites import Suite

__all__ = [
    "check_table_path",
    "default_table",
    "has_seeds",
    "network_row",
    "table_rows",
    "table_text",
    "write_table",
]

_TRAINING = ("train_accuracy", "train_loss", "epochs", "parameters")


def default_table(store: Path, suite: Suite) -> Path:
    """Where the record table of the last run of a suite lies."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in suite.name)
    return store / "tables" / f"{name}{'--quick' if suite.quick else ''}.csv"


def check_table_path(path: Path) -> None:
    """Complain about a table that could not be written, before anything is computed."""
    if path.suffix.lower() != ".csv":
        raise UserError(f"--table {path}: the table is CSV; give a file that ends in .csv")
    if not path.parent.is_dir():
        raise UserError(f"--table {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--table {path} cannot be written; choose another place")


def network_row(hyperparameters: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of one network, but for its readings."""
    point = dict(hyperparameters)
    seed = point.pop("seed", 0)
    return {
        **{f"hp.{name}": value for name, value in point.items()},
        "seed": seed,
        "gap": found["gap"],
        **{name: found[name] for name in sorted(found) if name.startswith("gap_ood_")},
        "test_error": 1 - found["test_accuracy"],
        "test_size": found["test_size"],
        "converged": found["converged"],
        **{name: found.get(name) for name in _TRAINING},
    }


def table_rows(report: RunReport) -> list[dict[str, Any]]:
    """One row per network that was judged; an empty cell where a measure gave no value."""
    return [
        {
            **network_row(subject.hyperparameters, report.evidence[subject.label]),
            **{f"complexity.{m.measure.name}": m.outcomes[subject.label].value for m in report.measures},
        }
        for subject in report.plan.evidence.subjects
        if "gap" in report.evidence[subject.label]
    ]


def has_seeds(report: RunReport) -> bool:
    """Whether a combination of hyperparameters was trained more than once, which the scores need."""
    return len({s.hyperparameters.get("seed") for s in report.plan.evidence.subjects}) > 1


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV."""
    columns = dict.fromkeys(name for row in rows for name in row)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def write_table(report: RunReport, path: Path) -> None:
    """Write the table, all of it or none."""
    rows = table_rows(report)
    if not rows:
        raise UserError("no network of this run was judged, so there is no record table")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, table_text(rows))
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None
