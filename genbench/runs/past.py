"""What a store says of cells that were computed before: how long they took, and how much memory.

Medians throughout: a cell that ran while the machine did something else, or slept, says nothing of the next
one. Nothing is created or changed, and a table that cannot be read is no reason to complain: `run` will.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from genbench.engine.store import COST, stored_folder

__all__ = ["Past", "PastReading", "Took", "took"]

_LATEST = 400
"""Of a step's cells: machines and code change."""
_FEW = 3
"""Readings of a measure below which they say nothing yet."""


@dataclass(frozen=True)
class Took:
    """What a stored cell took."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class PastReading:
    """Medians over the networks of a suite."""

    seconds: float
    """Of the measure itself."""
    shared_seconds: float
    """Of the parts that it shares with others."""
    peak_bytes: int


def took(store: Path, key: str) -> Took | None:
    """What a finished cell took, if its folder says so."""
    try:
        text = (stored_folder(store, key) / COST).read_text(encoding="utf-8")
        cost = json.loads(text.partition("\n")[2])["cost"]
        return Took(_own_seconds(cost), int(cost["peak_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _own_seconds(cost: dict[str, Any]) -> float:
    """Without those in which others had the processor; on several threads the wall clock is ahead of it."""
    wall, processor = float(cost["seconds"]), float(cost.get("processor_seconds", 0.0))
    on_processor = str(cost.get("device", "cpu")).startswith("cpu")
    return min(wall, processor) if processor > 0 and on_processor else wall


class Past:
    """The history of a store, read when asked for."""

    def __init__(self, store: Path) -> None:
        self._file = store / "readings.sqlite"

    def steps(self) -> dict[str, float]:
        """Name of a step to seconds of one of its latest cells."""
        found: dict[str, list[float]] = {}
        query = "SELECT kind, seconds FROM events WHERE event = 'ok' AND kind <> 'reading' ORDER BY id DESC"
        for kind, seconds in self._rows(query):
            if len(seen := found.setdefault(kind, [])) < _LATEST:
                seen.append(seconds)
        return {kind: median(seen) for kind, seen in found.items()}

    def readings(self, suite: str, *, quick: bool) -> dict[str, PastReading]:
        """Measure to what a reading of it took on networks of this suite."""
        query = (
            "SELECT measure, seconds, shared_seconds, peak_bytes FROM readings "
            "WHERE suite = ? AND quick = ? AND status IN ('ok', 'not_applicable')"
        )
        found: dict[str, list[tuple[float, float, int]]] = {}
        for measure, own, shared, peak in self._rows(query, suite, int(quick)):
            found.setdefault(measure, []).append((own, shared, peak))
        return {
            measure: PastReading(
                median(one[0] for one in seen), median(one[1] for one in seen), max(one[2] for one in seen)
            )
            for measure, seen in found.items()
            if len(seen) >= _FEW
        }

    def _rows(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        if not self._file.is_file():
            return []
        address = f"{self._file.resolve().as_uri()}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=5)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.Error:
            return []
