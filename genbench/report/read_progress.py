"""Progress of `genbench read` on standard error: every reading as it ends, below a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from genbench.engine.cells import Cell, Outcome

__all__ = ["read_progress"]


@contextmanager
def read_progress(*, quiet: bool = False) -> Iterator[_Readings]:
    """What fits standard error; `quiet` shows nothing but notes."""
    readings = _Readings(quiet=quiet)
    try:
        yield readings
    finally:
        readings.close()


class _Readings:
    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._quiet = quiet
        shown = sys.stderr.isatty() and not quiet
        self._bar = Progress(console=Console(stderr=True), transient=True) if shown else None
        self._total = self._done = 0

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        self._total, self._done = len(stored) + len(pending), len(stored)
        if stored:
            self._say(f"{len(stored)} of {self._total} readings are stored")
        if self._bar is not None:
            self._task = self._bar.add_task("read", total=self._total, completed=self._done)
            self._bar.start()

    def started(self, cell: Cell, node: str) -> None:
        pass

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self._done += 1
        found = outcome.reason if outcome.value is None else f"{outcome.value:.6g}"
        self._say(f"{self._done}/{self._total} {cell.label}: {outcome.status} {found}")
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)
