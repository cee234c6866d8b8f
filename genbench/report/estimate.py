"""How much of a plan is done, and how long the rest will take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.engine.store import stored_folder
from genbench.runs import Plan

__all__ = ["KIND_NAMES", "Forecast", "duration", "estimate"]

KIND_NAMES = {
    "training_data": "training data",
    "heldout_data": "held-out data",
    "network": "train network",
    "evidence": "evaluate network",
    "reading": "take reading",
}

_FIRST_GUESS = {"training_data": 1.0, "heldout_data": 1.0, "network": 2.5, "evidence": 0.1, "reading": 0.1}
"""Seconds of a cell on one core of a common machine, until the store has a history of its own."""

_WORKER_START = 2.0
"""Seconds until a worker has imported torch."""


@dataclass(frozen=True)
class Forecast:
    """Cells by kind, how many are stored, and the seconds that the others will take."""

    suite: str
    quick: bool
    cells: dict[str, int]
    stored: dict[str, int]
    seconds_each: dict[str, float]
    workers: int

    @property
    def seconds(self) -> float:
        """Expected wall time."""
        work = sum((self.cells[k] - self.stored[k]) * self.seconds_each[k] for k in self.cells)
        return work / self.workers + _WORKER_START if work else 0.0

    def rows(self) -> list[dict[str, Any]]:
        """One per kind of cell."""
        return [
            {
                "step": KIND_NAMES.get(kind, kind),
                "cells": count,
                "stored": self.stored[kind],
                "to compute": count - self.stored[kind],
                "seconds each": f"{self.seconds_each[kind]:.2g}",
            }
            for kind, count in self.cells.items()
        ]

    def sentence(self) -> str:
        """The plan in one line."""
        total, stored = sum(self.cells.values()), sum(self.stored.values())
        if total == stored:
            return f"all {total} cells are stored; nothing to compute"
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return f"{total - stored} of {total} cells to compute, about {duration(self.seconds)} with {workers}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "suite": self.suite,
            "quick": self.quick,
            "steps": self.rows(),
            "cells": sum(self.cells.values()),
            "stored": sum(self.stored.values()),
            "seconds": self.seconds,
            "workers": self.workers,
        }


def estimate(plan: Plan, store: Path, workers: int | None = None) -> Forecast:
    """Look at the store, if there is one, without creating or changing anything."""
    cells: dict[str, int] = {}
    stored: dict[str, int] = {}
    for cell in plan.cells():
        cells[cell.kind] = cells.get(cell.kind, 0) + 1
        found = stored_folder(store, cell.key).is_dir()
        stored[cell.kind] = stored.get(cell.kind, 0) + found
    history = _history(store)
    return Forecast(
        suite=plan.suite.name,
        quick=plan.suite.quick,
        cells=cells,
        stored=stored,
        seconds_each={kind: _expected_seconds(kind, history) for kind in cells},
        workers=workers or os.cpu_count() or 1,
    )


def _expected_seconds(kind: str, history: dict[str, float]) -> float:
    """From this store's own history, or a first guess."""
    return history.get(kind, _FIRST_GUESS.get(kind, 1.0))


def _history(store: Path) -> dict[str, float]:
    import sqlite3

    file = store / "readings.sqlite"
    if not file.is_file():
        return {}
    try:
        with sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5) as connection:
            query = "SELECT kind, AVG(seconds) FROM events WHERE event = 'ok' GROUP BY kind"
            return dict(connection.execute(query))
    except sqlite3.Error:
        return {}  # an estimate is no place to complain; `run` will


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
