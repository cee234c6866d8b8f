"""The default executor: worker processes on this machine."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from genbench.engine.cells import Assignment, Cell, Limits, Outcome, Status
from genbench.engine.compute import start_seconds
from genbench.engine.messages import Ended, Job, Task, line, parse
from genbench.engine.readings import READING
from genbench.engine.workers import NurseryEnded, Worker, Workers
from genbench.errors import UserError

__all__ = ["LocalExecutor", "Slot"]

_GRACE_SECONDS = 90.0
"""A worker enforces the time limit on its children, whose start it waits for too; past this much more, the
worker itself is stuck."""

_OWN_STEP_SECONDS = 7 * 24 * 3600.0
"""genbench's own steps (training a network, say) end by themselves, and on a large suite not soon."""


@dataclass
class Slot:
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

    def __init__(self, jobs: int, limits: Limits, scratch: Path, workers: Workers | None = None) -> None:
        self._limits = limits
        self._slots = [Slot() for _ in range(jobs)]
        self._selector = selectors.DefaultSelector()
        self._workers = workers or Workers(scratch)
        self._numbers = count()
        self._groups: dict[str, str] = {}
        """Group to the number that workers know it by: a reading knows what its worker does."""

    def free(self) -> list[Slot]:
        """Slots that can take work, those with a loaded subject first."""
        return sorted((slot for slot in self._slots if not slot.left), key=lambda slot: slot.group == "")

    def busy(self) -> list[Cell]:
        """Cells that are being computed."""
        return [one.cell for slot in self._slots for one in slot.left.values()]

    def submit(self, slot: Slot, trip: Sequence[Assignment]) -> None:
        """Start computing cells of one group, one after another."""
        slot.left = {str(next(self._numbers)): one for one in trip}
        slot.group = trip[0].cell.group or slot.group
        reads = trip[0].cell.step == READING
        if reads and slot.knows_truths:
            self._stop(slot, idle=True)
        slot.knows_truths = not reads or slot.knows_truths
        try:
            if slot.worker is None:
                slot.worker = self._workers.start()
                self._selector.register(slot.worker.channel, selectors.EVENT_READ, slot)
        except NurseryEnded as end:
            raise UserError(
                f"workers cannot be started: {end}; `genbench doctor` looks for the cause"
            ) from end
        seconds = self._seconds(trip[0].cell)
        group = self._groups.setdefault(slot.group, str(len(self._groups))) if slot.group else ""
        tasks = [_task(number, one) for number, one in slot.left.items()]
        job = Job(tasks, group, replace(self._limits, seconds=seconds))
        self._wait_for_next(slot)
        with contextlib.suppress(OSError):  # it died between two trips; `wait` sees its end and says so
            slot.worker.channel.sendall(line(job))

    def _seconds(self, cell: Cell) -> float:
        limited = cell.step == READING or cell.step.users_code
        return self._limits.seconds if limited else _OWN_STEP_SECONDS

    def _wait_for_next(self, slot: Slot) -> None:
        # Twice: a reading that took its process down is taken again, alone, before there is an answer.
        longest = max((self._seconds(one.cell) for one in slot.left.values()), default=0.0)
        patience = 2 * (longest + start_seconds(self._limits.compute)) + _GRACE_SECONDS
        slot.deadline = time.monotonic() + patience

    def wait(self, seconds: float) -> list[tuple[Cell, Outcome]]:
        """Cells that ended within `seconds`, with how they ended."""
        ended = []
        for event, _ in self._selector.select(seconds):
            slot: Slot = event.data
            assert slot.worker is not None
            try:
                data = slot.worker.channel.recv(1 << 20)
            except ConnectionError:
                data = b""
            if data:
                ended += self._answers(slot, data)
            else:
                ended += self._lost(slot, Status.CRASHED, "its worker process died")
        for slot in self._slots:
            if slot.left and time.monotonic() > slot.deadline:
                reason = (
                    f"its worker did not answer within {self._limits.seconds:g} s; --timeout sets the limit"
                )
                ended += self._lost(slot, Status.TIMEOUT, reason)
        return ended

    def _answers(self, slot: Slot, data: bytes) -> list[tuple[Cell, Outcome]]:
        *lines, slot.received = (slot.received + data).split(b"\n")
        found = [parse(text, Ended) for text in lines]
        answers = [(slot.left.pop(one.key).cell, one.outcome) for one in found]
        self._wait_for_next(slot)
        return answers

    def _lost(self, slot: Slot, status: Status, reason: str) -> list[tuple[Cell, Outcome]]:
        """A worker is lost, and with it the first cell that it has not answered; a new one has the rest."""
        left, slot.left, slot.group = list(slot.left.values()), {}, ""
        code, log = self._stop(slot)
        if not left:
            return []
        last = log.strip().splitlines()[-1:] or [f"exit code {code}"]
        if left[1:]:
            self.submit(slot, left[1:])
        return [(left[0].cell, Outcome(status, f"{reason} ({last[0]})", output=log[-4096:]))]

    def _stop(self, slot: Slot, *, idle: bool = False) -> tuple[int | None, str]:
        """End a worker; its children die with it."""
        worker, slot.worker, slot.received, slot.knows_truths = slot.worker, None, b"", False
        if worker is None:
            return None, ""
        self._selector.unregister(worker.channel)
        return self._workers.stop(worker, idle=idle)

    def close(self) -> None:
        """Stop all workers at once."""
        for slot in self._slots:
            self._stop(slot, idle=not slot.left)
        self._workers.close()
        self._selector.close()


def _task(number: str, one: Assignment) -> Task:
    cell = one.cell
    parents = {name: str(folder) for name, folder in one.parents.items()}
    return Task(
        number,
        cell.step.function,
        dict(cell.inputs),
        dict(cell.how),
        parents,
        str(one.out),
    )
