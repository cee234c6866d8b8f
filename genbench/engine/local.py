"""The default executor: worker processes on this machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from genbench.engine.cells import Assignment, Cell, Outcome, Status
from genbench.engine.compute import start_seconds
from genbench.engine.executors import Note, Slot, Trip
from genbench.engine.messages import Ended, Job, Task, line, parse
from genbench.engine.readings import READING
from genbench.engine.workers import NurseryEnded, Worker, Workers
from genbench.errors import UserError
from genbench.plugin.offers import ExecutorRequest

__all__ = ["LocalExecutor"]

_GRACE_SECONDS = 90.0
"""A worker enforces the time limit on its children, whose start it waits for too; past this much more, the
worker itself is stuck."""

_OWN_STEP_SECONDS = 7 * 24 * 3600.0
"""genbench's own steps (training a network, say) end by themselves, and on a large suite not soon."""


@dataclass
class _Place:
    """One worker and what it is doing."""

    group: str = ""
    """The subject it has loaded."""
    left: dict[str, Assignment] = field(default_factory=dict)
    """What it has not answered yet, by the number that the worker knows it by."""
    deadline: float = 0.0
    worker: Worker | None = None
    received: bytes = field(default=b"", repr=False)
    knows_truths: bool = False
    """Whether its worker has computed other cells than readings, and may remember what came of them."""


class LocalExecutor:
    """Runs up to `jobs` trips at once; workers are started when first needed."""

    def __init__(self, request: ExecutorRequest, workers: Workers | None = None) -> None:
        self._limits = request.limits
        self._places = [_Place() for _ in range(request.jobs or os.cpu_count() or 1)]
        self._selector = selectors.DefaultSelector()
        self._workers = workers or Workers(request.scratch)
        self._numbers = count()
        self._groups: dict[str, str] = {}
        """Group to the number that workers know it by: a reading knows what its worker does."""

    def free(self) -> list[Slot]:
        """Slots that can take work, those with a loaded subject first."""
        free = [Slot(str(n), place.group) for n, place in enumerate(self._places) if not place.left]
        return sorted(free, key=lambda slot: slot.group == "")

    def submit(self, slot: Slot, trip: Trip) -> None:
        """Start computing cells of one group, one after another."""
        self._start(self._places[int(slot.name)], trip.cells)

    def _start(self, place: _Place, trip: Sequence[Assignment]) -> None:
        place.left = {str(next(self._numbers)): one for one in trip}
        place.group = trip[-1].cell.group or place.group
        reads = trip[0].cell.step == READING
        if reads and place.knows_truths:
            self._stop(place, idle=True)
        place.knows_truths = not reads or place.knows_truths
        try:
            if place.worker is None:
                place.worker = self._workers.start()
                self._selector.register(place.worker.channel, selectors.EVENT_READ, place)
        except NurseryEnded as end:
            raise UserError(
                f"workers cannot be started: {end}; `genbench doctor` looks for the cause"
            ) from end
        seconds = self._seconds(trip[0].cell)
        tasks = [_task(number, one, self._group(one.cell)) for number, one in place.left.items()]
        job = Job(tasks, replace(self._limits, seconds=seconds))
        self._wait_for_next(place)
        with contextlib.suppress(OSError):  # it died between two trips; `wait` sees its end and says so
            place.worker.channel.sendall(line(job))

    def _group(self, cell: Cell) -> str:
        return self._groups.setdefault(cell.group, str(len(self._groups))) if cell.group else ""

    def _seconds(self, cell: Cell) -> float:
        limited = cell.step == READING or cell.step.users_code
        return self._limits.seconds if limited else _OWN_STEP_SECONDS

    def _wait_for_next(self, place: _Place) -> None:
        # Twice: a reading that took its process down is taken again, alone, before there is an answer.
        longest = max((self._seconds(one.cell) for one in place.left.values()), default=0.0)
        patience = 2 * (longest + start_seconds(self._limits.compute)) + _GRACE_SECONDS
        place.deadline = time.monotonic() + patience

    def wait(self, seconds: float) -> list[Ended | Note]:
        """Cells that ended within `seconds`, with how they ended."""
        ended: list[Ended | Note] = []
        for event, _ in self._selector.select(seconds):
            place: _Place = event.data
            assert place.worker is not None
            try:
                data = place.worker.channel.recv(1 << 20)
            except ConnectionError:
                data = b""
            if data:
                ended += self._answers(place, data)
            else:
                ended += self._lost(place, Status.CRASHED, "its worker process died")
        for place in self._places:
            if place.left and time.monotonic() > place.deadline:
                reason = (
                    f"its worker did not answer within {self._limits.seconds:g} s; --timeout sets the limit"
                )
                ended += self._lost(place, Status.TIMEOUT, reason)
        return ended

    def _answers(self, place: _Place, data: bytes) -> list[Ended]:
        *lines, place.received = (place.received + data).split(b"\n")
        found = [parse(text, Ended) for text in lines]
        answers = [Ended(place.left.pop(one.key).cell.key, one.outcome) for one in found]
        self._wait_for_next(place)
        return answers

    def _lost(self, place: _Place, status: Status, reason: str) -> list[Ended]:
        """A worker is lost, and with it the first cell that it has not answered; a new one has the rest."""
        left, place.left, place.group = list(place.left.values()), {}, ""
        code, log = self._stop(place)
        if not left:
            return []
        last = log.strip().splitlines()[-1:] or [f"exit code {code}"]
        if left[1:]:
            self._start(place, left[1:])
        return [Ended(left[0].cell.key, Outcome(status, f"{reason} ({last[0]})", output=log[-4096:]))]

    def _stop(self, place: _Place, *, idle: bool = False) -> tuple[int | None, str]:
        """End a worker; its children die with it."""
        worker, place.worker, place.received, place.knows_truths = place.worker, None, b"", False
        if worker is None:
            return None, ""
        self._selector.unregister(worker.channel)
        return self._workers.stop(worker, idle=idle)

    def close(self) -> None:
        """Stop all workers at once."""
        for place in self._places:
            self._stop(place, idle=not place.left)
        self._workers.close()
        self._selector.close()


def _task(number: str, one: Assignment, group: str) -> Task:
    cell = one.cell
    parents = {name: str(folder) for name, folder in one.parents.items()}
    return Task(
        number,
        cell.step.function,
        dict(cell.inputs),
        dict(cell.how),
        parents,
        str(one.out),
        group,
    )
