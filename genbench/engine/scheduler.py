"""Brings a set of cells to their end: reads what is stored, computes what is not, stores it once."""

from __future__ import annotations

import math
import platform
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from types import FrameType
from typing import Protocol

from genbench.engine.cells import KEPT, Assignment, Cause, Cell, Outcome, Status
from genbench.engine.executors import CellExecutor, Ended, Note, Trip
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.store import Damage, Origin, Store, disk_full
from genbench.errors import UserError

__all__ = ["Progress", "provenance", "run_cells"]

_POLL_SECONDS = 0.2
"""Between two looks at cells that another run is computing."""
_LONG_SECONDS = 1.0
"""Without any: whatever happens wakes us, but for a worker that says nothing at all."""
_TRIP_SECONDS = 1.0
"""Of readings of several networks that go to a worker in one trip: less would be spent on the way, and with
more one worker would be left with the last."""
_TRIP_CELLS = 64
_COMMITS = 8
"""Cells that ended together and are written at the same time."""


class Progress(Protocol):
    """Told what happens while cells run."""

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None:
        """What needs no work and what does."""
        ...

    def started(self, cell: Cell, node: str) -> None:
        """A cell's computation began on the machine `node`, which is empty for this one."""
        ...

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """A cell ended."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know."""
        ...


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    table: ReadingTable,
    make_executor: Callable[[], CellExecutor],
    progress: Progress,
) -> dict[str, Outcome]:
    """Outcomes of all `cells` by key; the order of `cells` puts parents before children."""
    run = _Run(list(cells), store, table, progress)
    run.read_stored()
    progress.begin([run.cells[key] for key in run.outcomes], list(run.pending.values()))
    if run.pending:
        executor = make_executor()
        try:
            with _ctrl_c() as stopped:
                run.compute(executor, stopped)
        finally:
            executor.close()
    return run.outcomes


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Remembers Ctrl-C: Python drops a KeyboardInterrupt that is raised in a finalizer or a callback."""
    seen = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, before)


class _Run:
    """One run over a set of cells: what is done, what could start now, what waits for a parent."""

    def __init__(self, cells: list[Cell], store: Store, table: ReadingTable, progress: Progress) -> None:
        self.cells = {cell.key: cell for cell in cells}
        self.outcomes: dict[str, Outcome] = {}
        self.pending: dict[str, Cell] = dict(self.cells)
        """Neither done nor being computed."""
        self.running: dict[str, Cell] = {}
        """Handed to the executor, and not ended."""
        self._ready: dict[str, deque[Cell]] = {}
        """Cells that could start now, by group."""
        self._children: dict[str, list[Cell]] = {}
        for cell in cells:
            for parent in cell.sources.values():
                self._children.setdefault(parent, []).append(cell)
        self._took: dict[str, tuple[float, int]] = {}
        """Of each measure: seconds of its readings so far, and their number."""
        self._elsewhere: list[tuple[float, Cell]] = []
        """Cells that another run is computing, with the time to look again."""
        self._store = store
        self._table = table
        self._progress = progress
        self._provenance = provenance()

    def read_stored(self) -> None:
        """Take what the store has; name and drop what is damaged."""
        if self._table.repaired:
            self._progress.note(self._table.repaired)
        # Children first: what is made on demand is not even looked at if nothing waits for it.
        for cell in reversed(self.cells.values()):
            waiting = any(child.key in self.pending for child in self._children.get(cell.key, ()))
            if cell.on_demand and not waiting:
                del self.pending[cell.key]
            else:
                self._take_stored(cell)

    def _take_stored(self, cell: Cell) -> bool:
        found = self._store.read(cell.key)
        if isinstance(found, Damage):
            self._progress.note(f"{found}; made again: {cell.label}")
            if self._store.try_lock(cell.key):
                self._store.discard(cell.key)
                self._store.unlock(cell.key)
            return False
        if found is None:
            return False
        self.outcomes[cell.key] = found
        del self.pending[cell.key]
        if correction := self._table.ensure(cell, found):
            self._progress.note(correction)
        return True

    def compute(self, executor: CellExecutor, stopped: Callable[[], bool]) -> None:
        """Compute all pending cells, unless `stopped`."""
        for waiting in self.pending.values():
            self._queue_if_ready(waiting)
        while self.pending or self.running:
            if stopped():
                raise KeyboardInterrupt
            self._look_elsewhere_again()
            free = executor.free()
            for place, slot in enumerate(free):
                taken = {cell.group for cell in self.running.values()}
                cells = self._claim(slot.group, taken, len(free) - place)
                if not cells:
                    break
                self._table.started(cells)
                for cell in cells:
                    self._progress.started(cell, slot.node)
                self.running.update((cell.key, cell) for cell in cells)
                executor.submit(slot, Trip(tuple(map(self._assigned, cells))))
            self._take(executor.wait(_POLL_SECONDS if self._elsewhere else _LONG_SECONDS))

    def _take(self, said: Sequence[Ended | Note]) -> None:
        for one in said:
            if isinstance(one, Note):
                self._progress.note(one.text)
        ended = [(self.running.pop(one.key), one.outcome) for one in said if isinstance(one, Ended)]
        if ended:
            self._finish(ended)

    def _assigned(self, cell: Cell) -> Assignment:
        parents = {name: self._store.folder(key) for name, key in cell.sources.items()}
        # A reading has no files.
        out = self._store.staging(cell.key) if cell.step == READING else self._store.stage(cell.key)
        return Assignment(cell, parents, out)

    def _queue_if_ready(self, cell: Cell) -> None:
        if cell.key in self.pending and all(key in self.outcomes for key in cell.sources.values()):
            self._ready.setdefault(cell.group, deque()).append(cell)

    def _look_elsewhere_again(self) -> None:
        now = time.monotonic()
        due = [cell for when, cell in self._elsewhere if when <= now]
        self._elsewhere = [(when, cell) for when, cell in self._elsewhere if when > now]
        for cell in due:
            self._queue_if_ready(cell)

    def _claim(self, group: str, taken: set[str], slots: int) -> list[Cell]:
        """What can start next, claimed for this run: a cell, with those that go together with it.

        Readings that take next to no time go together with those of other networks.

        First what other cells wait for (no group), then the subject that the worker has loaded, then one
        that no worker is on, then any.

        Parameters
        ----------
        slots : workers without work, this one included.
        """
        while self._ready:
            # Only the first: to look at all, each time, takes seconds where there are a thousand networks.
            untaken = (name for name in self._ready if name not in taken)
            preferred = chain(("", group), untaken, self._ready)
            name = next(name for name in preferred if name in self._ready)
            trip = self._claim_of(name, slots)
            while trip and (other := self._quick_companion(trip, taken)):
                trip += self._claim_of(other, slots)
            if trip:
                return trip
        return []

    def _claim_of(self, name: str, slots: int) -> list[Cell]:
        """Cells of one group that go together."""
        trip: list[Cell] = []
        while (queue := self._ready.get(name)) and self._goes_with(queue[0], trip, slots):
            cell = queue.popleft()
            if self._claimed(cell):
                trip.append(cell)
        if not self._ready.get(name):
            self._ready.pop(name, None)
        return trip

    def _quick_companion(self, trip: list[Cell], taken: set[str]) -> str:
        """The group of another network whose readings fit into the trip, by what the measures took so far."""
        seconds = sum(map(self._expected, trip))
        if trip[0].step != READING or seconds > _TRIP_SECONDS:
            return ""
        name = next((name for name in self._ready if name and name not in taken), "")
        others = self._ready.get(name, ())
        fits = (
            len(trip) + len(others) <= _TRIP_CELLS
            and all(cell.together == trip[0].together for cell in others)
            and seconds + sum(map(self._expected, others)) <= _TRIP_SECONDS
        )
        return name if fits else ""

    def _expected(self, cell: Cell) -> float:
        seconds, count = self._took.get(str(cell.about.get("measure")), (math.inf, 1))
        return seconds / count

    def _goes_with(self, cell: Cell, trip: list[Cell], slots: int) -> bool:
        if not trip:
            return True
        if not cell.together or cell.together != trip[0].together:
            return False
        # Where networks are fewer than workers and no more will come, each worker has a part of one.
        groups = len(self._ready)
        if groups >= slots or any(not waiting.group for waiting in self.pending.values()):
            return True
        return len(trip) < -(-(len(trip) + len(self._ready[cell.group])) // -(-slots // groups))

    def _claimed(self, cell: Cell) -> bool:
        if not self._store.try_lock(cell.key):
            self._elsewhere.append((time.monotonic() + _POLL_SECONDS, cell))
            return False
        # Another run may have finished it since we looked.
        if self._take_stored(cell):
            self._store.unlock(cell.key)
            self._ended(cell, self.outcomes[cell.key])
            return False
        del self.pending[cell.key]
        return True

    def _finish(self, ended: Sequence[tuple[Cell, Outcome]]) -> None:
        for cell, outcome in ended:
            if cell.step == READING:
                measure, cost = str(cell.about.get("measure")), outcome.cost
                seconds, count = self._took.get(measure, (0.0, 0))
                self._took[measure] = seconds + cost.seconds + cost.shared_seconds, count + 1
        self._commit(ended)
        self._table.ended(ended)
        for cell, outcome in ended:
            if cell.step != READING:
                _raise_if_fixable(outcome, self._store)
        for cell, outcome in ended:
            self._store.unlock(cell.key)
            self.outcomes[cell.key] = outcome
            self._ended(cell, outcome)

    def _commit(self, ended: Sequence[tuple[Cell, Outcome]]) -> None:
        def commit(one: tuple[Cell, Outcome]) -> None:
            cell, outcome = one
            if outcome.status in KEPT:
                self._store.commit(cell, outcome, self._provenance, surely=cell.step != READING)
            else:
                self._store.unstage(cell.key)

        waiting = [one for one in ended if one[0].step != READING]
        if len(waiting) > 1:
            # Nearly all of it is waiting until the disk has them, which it writes together if asked together.
            with ThreadPoolExecutor(_COMMITS) as pool:
                list(pool.map(commit, waiting))
            ended = [one for one in ended if one[0].step == READING]
        for one in ended:
            commit(one)

    def _ended(self, cell: Cell, outcome: Outcome) -> None:
        """Tell, and see to the cells that waited for this one."""
        self._progress.ended(cell, outcome)
        for child in self._children.get(cell.key, ()):
            if outcome.status is Status.OK:
                self._queue_if_ready(child)
            elif child.key in self.pending:
                # Nothing to work on: it ends here, and so do those that wait for it.
                del self.pending[child.key]
                self.outcomes[child.key] = Outcome(Status.FAILED, f"{cell.label}: {outcome.reason}")
                self._ended(child, self.outcomes[child.key])


def _raise_if_fixable(outcome: Outcome, store: Store) -> None:
    """genbench's own steps fail for reasons that a person can fix, and that no other cell would escape."""
    if outcome.fixable is None:
        return
    if outcome.fixable.cause is Cause.DISK:
        raise disk_full(store.root)
    raise UserError(outcome.fixable.text)


def provenance() -> Origin:
    """Package versions, platform and time: what may explain a difference between two machines."""
    packages = {}
    for name in ("genbench", "torch", "numpy", "safetensors", "scikit-learn"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "unknown"
    return {
        "packages": packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
