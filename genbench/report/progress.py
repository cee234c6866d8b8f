"""Progress of a run: bars on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from genbench.engine.cells import Cell, Outcome, Status, Step
from genbench.report.notebook_bar import NotebookBar, in_notebook
from genbench.runs.forecast import duration, estimate
from genbench.runs.plan import Plan

if TYPE_CHECKING:
    import rich.progress

    from genbench.engine.scheduler import Progress

__all__ = ["cell_progress", "counted", "make_progress", "silent_progress"]

_QUIET_SECONDS = 5.0

T = TypeVar("T")


@contextmanager
def make_progress(
    plan: Plan, store: Path, *, jobs: int | None = None, quiet: bool = False
) -> Iterator[Progress]:
    """Say what will be done and how long it will take, then show the display that fits where this runs."""
    if in_notebook() and not quiet:
        yield _Cells(NotebookBar(f"{_headline(plan)}; {estimate(plan, store, jobs).sentence()}"))
        return
    print(_headline(plan), estimate(plan, store, jobs).sentence(), sep="\n", file=sys.stderr)
    with cell_progress(quiet=quiet) as progress:
        yield progress


@contextmanager
def cell_progress(*, quiet: bool = False) -> Iterator[Progress]:
    """The display that fits standard error, of cells that belong to no run of a suite."""
    if sys.stderr.isatty() and not quiet:
        with _Bars() as bars:
            yield bars
    else:
        yield _Lines()


@contextmanager
def silent_progress() -> Iterator[Progress]:
    """Nothing but what a person must know."""
    yield _Silent()


def counted(items: Sequence[T], title: str, *, shown: bool, name: Callable[[T], str]) -> Iterator[T]:
    """The items one after another, with a bar that says which one is in work."""
    if shown and in_notebook():
        bar = NotebookBar(title)
        for place, item in enumerate(items):
            bar.update(place, len(items), name(item))
            yield item
        bar.update(len(items), len(items), "")
    elif shown and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as display:
            task = display.add_task(title, total=len(items))
            for item in items:
                display.update(task, description=f"{title}: {name(item)}")
                yield item
                display.advance(task)
    else:
        yield from items


def _headline(plan: Plan) -> str:
    networks, measures = len(plan.evidence.networks), len(plan.measures)
    mark = "  [quick: a small subset, not comparable with full results]" if plan.suite.quick else ""
    work = f"{networks} networks × {measures} measures" if measures else f"evidence of {networks} networks"
    return f"suite {plan.suite.title}: {work}{mark}"


def _placed(cell: Cell, node: str) -> str:
    return f"{cell.label} on {node}" if node else cell.label


def _failed(outcome: Outcome) -> bool:
    return outcome.status not in (Status.OK, Status.NOT_APPLICABLE)


class _Silent:
    """Tells notes alone."""

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        pass

    def started(self, cell: Cell, node: str) -> None:
        pass

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        pass

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class _Cells(_Silent):
    """The cells of a run on the bar of a notebook."""

    def __init__(self, bar: NotebookBar) -> None:
        self._bar = bar
        self._total = self._done = 0

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        self._total, self._done = len(stored) + len(pending), len(stored)
        self._bar.update(self._done, self._total, "")

    def started(self, cell: Cell, node: str) -> None:
        self._bar.update(self._done, self._total, _placed(cell, node))

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self._done += 1
        self._bar.update(self._done, self._total, cell.label)
        if _failed(outcome):
            self.note(f"{cell.label}: {outcome.status}: {outcome.reason}")


class _Lines:
    """Plain lines: the plan, failures and notes at once, a count every few seconds."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._began = self._spoke = time.monotonic()

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        self._total, self._done = len(stored) + len(pending), len(stored)

    def started(self, cell: Cell, node: str) -> None:
        pass

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self._done += 1
        if _failed(outcome):
            self.note(f"{cell.label}: {outcome.status}: {outcome.reason}")
        now = time.monotonic()
        if now - self._spoke > _QUIET_SECONDS or self._done == self._total:
            self._spoke = now
            print(f"{self._done}/{self._total} cells, {duration(now - self._began)}", file=sys.stderr)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class _Bars:
    """One rich progress bar per step."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[now]}"),
            console=Console(stderr=True),
        )
        self._bars: dict[Step, rich.progress.TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        done = Counter(cell.step for cell in stored)
        for step, count in Counter(cell.step for cell in pending).items():
            self._bars[step] = self._progress.add_task(
                step.title,
                total=count + done[step],
                completed=done[step],
                now="",
                start=False,
            )

    def started(self, cell: Cell, node: str) -> None:
        self._progress.start_task(self._bars[cell.step])
        self._progress.update(self._bars[cell.step], now=_placed(cell, node))

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self._progress.update(self._bars[cell.step], advance=1)
        if _failed(outcome):
            self.note(f"{cell.label}: {outcome.status}: {outcome.reason}")

    def note(self, text: str) -> None:
        self._progress.console.print(text, style="yellow", highlight=False, markup=False)
