"""Bars that show how far the scores of a table have come, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from genbench.scoring.all_scores import SCORES, ScoreProgress

if TYPE_CHECKING:
    import rich.progress

__all__ = ["score_progress"]


@contextmanager
def score_progress(*, quiet: bool = False) -> Iterator[ScoreProgress | None]:
    """A bar per score while the block runs; nothing where standard error is no terminal, or if `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: rich.progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, rich.progress.TaskID] = {}

    def begin(self, score: str) -> None:
        self._tasks[score] = self._bars.add_task(SCORES[score], total=1.0)

    def advance(self, score: str, share: float) -> None:
        self._bars.update(self._tasks[score], advance=share)

    def end(self, score: str) -> None:
        self._bars.update(self._tasks[score], completed=1.0)
