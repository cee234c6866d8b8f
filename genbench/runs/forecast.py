"""How much of a plan is done, and what the rest will take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from msgspec import Struct

from genbench.engine.cells import Cell, Step
from genbench.engine.readings import READING
from genbench.engine.store import stored_folder
from genbench.runs.past import Past, took
from genbench.runs.plan import Plan
from genbench.runs.reading_costs import reading_costs
from genbench.suites.kind import kind_of
from genbench.suites.plan import CellForecast

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
    """Look at the store, if there is one, without creating or changing anything.

    What a kind tells of a cell is corrected by what the plan's own stored cells of that step took. Where it
    tells nothing, the store's other cells of the step count, and where there are none, a constant.
    """
    demanded = _demanded(plan.cells(), store)
    cells = Counter(cell.step for cell, _ in demanded)
    stored = Counter(dict.fromkeys(cells, 0))
    stored.update(cell.step for cell, found in demanded if found)
    left = [cell for cell, found in demanded if not found]
    past = Past(store)
    told = _told(plan, left, [cell for cell, found in demanded if found], store) if left else {}
    readings = reading_costs(plan, left, past.readings(plan.suite.name, quick=plan.suite.quick))
    before = past.steps() if any(cell.key not in told for cell in left) else {}
    seconds = {cell.key: before.get(cell.step.name, cell.step.seconds) for cell in left}
    seconds |= {key: one.seconds for key, one in told.items()}
    seconds |= readings.seconds
    work: dict[Step, float] = {}
    for cell in left:
        work[cell.step] = work.get(cell.step, 0.0) + seconds[cell.key]
    trips: Counter[str] = Counter()
    for cell in left:
        # Readings of a network go to a worker together.
        trips[cell.group or cell.key] += seconds[cell.key]  # type: ignore[assignment]
    return Forecast(
        suite=plan.suite.name,
        quick=plan.suite.quick,
        cells=dict(cells),
        stored=dict(stored),
        work=work,
        longest=max(trips.values(), default=0.0),
        workers=workers or os.cpu_count() or 1,
        forward_passes=sum(one.forward_passes for one in told.values()) + readings.forward_passes,
        disk_bytes=sum(one.disk_bytes for one in told.values()),
        memory_bytes=max(readings.memory_bytes, *(one.memory_bytes for one in told.values()), 0),
        missing=list(plan.evidence.missing),
    )


_LEARNT_FROM = 60
"""Stored cells of a step at most: each is a file to be read."""
_ENOUGH = 3


def _told(plan: Plan, left: list[Cell], done: list[Cell], store: Path) -> dict[str, CellForecast]:
    """What the kind says of the cells that are left, corrected by what those that are done took."""
    steps = {cell.step for cell in left}
    known: dict[Step, list[Cell]] = {}
    for cell in done:
        if (
            cell.step in steps
            and cell.step != READING
            and len(alike := known.setdefault(cell.step, [])) < _LEARNT_FROM
        ):
            alike.append(cell)
    models = kind_of(plan.suite).forecast(
        plan.suite, [*left, *(cell for alike in known.values() for cell in alike)]
    )
    corrections = {step: _correction(alike, models, store) for step, alike in known.items()}
    return {
        cell.key: _corrected(models[cell.key], *corrections.get(cell.step, (1.0, 1.0)))
        for cell in left
        if cell.key in models
    }


def _correction(cells: list[Cell], models: Mapping[str, CellForecast], store: Path) -> tuple[float, float]:
    """(seconds, memory): how many times what the kind says cells of a step took."""
    pairs = [(models[c.key], found) for c in cells if c.key in models and (found := took(store, c.key))]
    if len(pairs) < _ENOUGH:
        return 1.0, 1.0
    times = median(found.seconds / max(model.seconds, 1e-3) for model, found in pairs)
    memory = median(
        found.peak_bytes / model.memory_bytes if model.memory_bytes else 1.0 for model, found in pairs
    )
    return times, memory


def _corrected(model: CellForecast, times: float, memory: float) -> CellForecast:
    return replace(model, seconds=times * model.seconds, memory_bytes=int(memory * model.memory_bytes))


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
