"""How much of a plan is done, and what the rest will take."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from genbench.engine.cells import Cell, Step
from genbench.engine.readings import READING
from genbench.engine.store import stored_folder
from genbench.runs.plan import Plan
from genbench.suites.kind import kind_of

__all__ = ["Forecast", "ForecastDocument", "duration", "estimate"]

_WORKER_START = 2.0
"""Seconds until a worker has imported torch."""


class ForecastDocument(Struct, frozen=True, kw_only=True):
    """What `genbench plan --json` says."""

    suite: str
    quick: bool
    steps: list[dict[str, str | int]]
    """Rows of the table, by column."""
    cells: int
    stored: int
    seconds: float
    seconds_with: dict[str, float]
    """Workers to seconds."""
    workers: int
    forward_passes: int
    disk_bytes: int
    memory_bytes: int
    missing: list[str]


@dataclass(frozen=True)
class Forecast:
    """Cells by step, how many are stored, and what the others will take."""

    suite: str
    quick: bool
    cells: dict[Step, int]
    """Cells that are part of the answer, by step: what is made on demand counts if it is demanded."""
    stored: dict[Step, int]
    work: dict[Step, float]
    """Seconds of one core, by step, that are left."""
    longest: float
    """Seconds of the longest cell left: no number of workers goes below."""
    workers: int
    forward_passes: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    """Of the largest cell left."""
    missing: list[str] = field(default_factory=list)
    """What is not on this machine."""

    def seconds_with(self, workers: int) -> float:
        """Expected wall time."""
        total = sum(self.work.values())
        return max(total / workers, self.longest) + _WORKER_START if total else 0.0

    @property
    def seconds(self) -> float:
        """Expected wall time with `workers`."""
        return self.seconds_with(self.workers)

    def rows(self) -> list[dict[str, str | int]]:
        """One per step."""
        return [
            {
                "step": step.title,
                "cells": count,
                "stored": self.stored[step],
                "to compute": count - self.stored[step],
                "seconds": f"{self.work.get(step, 0.0):.3g}",
            }
            for step, count in self.cells.items()
        ]

    def sentence(self) -> str:
        """The plan in one line."""
        total, stored = sum(self.cells.values()), sum(self.stored.values())
        if total == stored:
            return f"all {total} cells are stored; nothing to compute"
        return f"{total - stored} of {total} cells to compute, about {self._time(self.workers)}"

    def _time(self, workers: int) -> str:
        return f"{duration(self.seconds_with(workers))} with {workers} worker{'s' if workers > 1 else ''}"

    def details(self) -> list[str]:
        """Further lines for `genbench plan`."""
        lines = []
        if self.forward_passes:
            lines.append(f"{self.forward_passes:,} images through networks, forward or in training")
        if self.disk_bytes:
            disk, memory = _size(self.disk_bytes), _size(self.memory_bytes)
            lines.append(f"about {disk} on disk, {memory} of memory a worker")
        if any(self.work.values()):
            others = [n for n in (1, 4, 16, 64) if n != self.workers]
            lines.append("elsewhere: " + ", ".join(self._time(n) for n in others))
        lines += self.missing[:2]
        if len(self.missing) > 2:
            more = len(self.missing) - 2
            lines.append(
                f"and {more} more are missing; `genbench backbones` and `genbench datasets` say what to fetch"
            )
        return lines

    def document(self) -> ForecastDocument:
        """For `--json`."""
        return ForecastDocument(
            suite=self.suite,
            quick=self.quick,
            steps=self.rows(),
            cells=sum(self.cells.values()),
            stored=sum(self.stored.values()),
            seconds=self.seconds,
            seconds_with={str(n): self.seconds_with(n) for n in (1, 2, 4, 8, 16, 32, 64)},
            workers=self.workers,
            forward_passes=self.forward_passes,
            disk_bytes=self.disk_bytes,
            memory_bytes=self.memory_bytes,
            missing=self.missing,
        )


def estimate(plan: Plan, store: Path, workers: int | None = None) -> Forecast:
    """Look at the store, if there is one, without creating or changing anything."""
    demanded = _demanded(plan.cells(), store)
    cells = Counter(cell.step for cell, _ in demanded)
    stored = Counter(dict.fromkeys(cells, 0))
    stored.update(cell.step for cell, found in demanded if found)
    left = [cell for cell, found in demanded if not found]
    history = _history(store)
    kind = kind_of(plan.suite)
    guess = {READING: kind.reading_seconds}
    seconds = {
        cell.key: history.get(cell.step.name, guess.get(cell.step, cell.step.seconds)) for cell in left
    }
    told = kind.forecast(plan.suite, left)
    seconds |= {key: one.seconds for key, one in told.items()}
    work: Counter[Step] = Counter()
    for cell in left:
        work[cell.step] += seconds[cell.key]  # type: ignore[assignment]
    return Forecast(
        suite=plan.suite.name,
        quick=plan.suite.quick,
        cells=dict(cells),
        stored=dict(stored),
        work=dict(work),
        longest=max(seconds.values(), default=0.0),
        workers=workers or os.cpu_count() or 1,
        forward_passes=sum(one.forward_passes for one in told.values()),
        disk_bytes=sum(one.disk_bytes for one in told.values()),
        memory_bytes=max((one.memory_bytes for one in told.values()), default=0),
        missing=list(plan.evidence.missing),
    )


def _demanded(cells: list[Cell], store: Path) -> list[tuple[Cell, bool]]:
    """Cells that are part of the answer, and whether each is stored; see `scheduler._Run.read_stored`."""
    waiting: set[str] = set()
    found = []
    for cell in reversed(cells):
        if cell.on_demand and cell.key not in waiting:
            continue
        stored = stored_folder(store, cell.key).is_dir()
        found.append((cell, stored))
        if not stored:
            waiting.update(cell.sources.values())
    return found[::-1]


def _history(store: Path) -> dict[str, float]:
    import sqlite3

    file = store / "readings.sqlite"
    if not file.is_file():
        return {}
    try:
        address = f"{file.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5)) as connection:
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
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{max(1, round(count / 2**20))} MB"
