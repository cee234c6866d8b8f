"""Runs cells on the machines of a Ray cluster; the store stays on this one.

Every slot is an actor with the processors, the GPU and the memory of one cell. A lost machine costs the cells
that it was computing: they are computed again elsewhere. Actors end with this process, whatever ends it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.structs import replace as changed

from genbench.cluster.library import connect, import_ray
from genbench.cluster.node import NodeWorker, packages_here
from genbench.cluster.parcels import CellAnswer, NodeFacts, TransferDamaged
from genbench.cluster.shipping import Shipping
from genbench.engine.cells import Assignment, Outcome, Status
from genbench.engine.executors import Ended, Note, Slot, Trip
from genbench.engine.local import LocalExecutor
from genbench.errors import UserError, one_line
from genbench.plugin.offers import ExecutorRequest

__all__ = ["RayExecutor"]

_LOSSES = 3
"""Workers that a cell may lose before it is to blame."""
_STARTS = 3
"""Workers in a row that may end before they say a word."""
_PATIENCE = 60.0
"""Seconds without any worker until a person is told."""
_POLL_SECONDS = 0.05
"""Between two looks here while cells run on this machine too."""
_OWN_BYTES = 600 * 2**20
"""Of a worker before its first cell: three processes with Python, one with torch."""
_ROOM = 0.25
"""Share of the object store that is kept filled with what cells read."""


@dataclass
class _Remote:
    """An actor and what it is doing."""

    actor: Any
    starting: Any = None
    """Reference to its first words, until they are here."""
    node: str = ""
    group: str = ""
    left: dict[str, Assignment] = field(default_factory=dict)
    """Cells that it has not answered, by key."""
    answers: Any = None
    """What it is saying, until its last word."""


class RayExecutor:
    """Runs up to `jobs` trips at once, as many as the cluster has room for."""

    def __init__(self, request: ExecutorRequest) -> None:
        self._ray = import_ray()
        self._request = request
        self._joined = connect(self._ray, request.address)
        self._needs = self._resources()
        room = int(_ROOM * self._ray.cluster_resources().get("object_store_memory", 2**30))
        self._shipping = Shipping(self._ray.put, self._ray.get, room)
        self._remotes: dict[str, _Remote] = {}
        self._started = 0
        self._dumb = 0
        """Workers that ended before their first words, in a row."""
        self._again: deque[list[Assignment]] = deque()
        """What lost workers have not answered."""
        self._losses: Counter[str] = Counter()
        self._home: LocalExecutor | None = None
        self._at_home: deque[Trip] = deque()
        self._home_left = 0
        self._said: list[Ended | Note] = []
        self._kept_slot = False
        """Whether a trip was handed in that leaves its slot free for another."""
        self._unheard = time.monotonic()
        for _ in range(request.jobs or self._capacity()):
            self._start()

    # -- the cluster -----------------------------------------------------------------------------------------

    def _resources(self) -> dict[str, Any]:
        """Of one worker, and so of one cell."""
        compute = self._request.limits.compute
        needs: dict[str, Any] = {"num_cpus": compute.threads}
        if compute.device.startswith("cuda"):
            needs["num_gpus"] = 1
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        wanted = {"CPU": needs["num_cpus"], "GPU": needs.get("num_gpus", 0)}
        if not any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in alive):
            has = max((int(node.get("CPU", 0)) for node in alive), default=0)
            gpu = " and a GPU" if wanted["GPU"] else ""
            raise UserError(
                f"no node of the cluster has {wanted['CPU']} processors{gpu} for a cell, the largest has "
                f"{has} processors; choose fewer --threads or another --device"
            )
        if self._request.memory:
            largest = max(int(node.get("memory", 0)) for node in alive)
            needs["memory"] = min(self._request.memory + _OWN_BYTES, largest)
        return needs

    def _capacity(self) -> int:
        """Workers that the whole cluster has room for now."""
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        fits = [
            min(int(node["Resources"].get(names[need], 0) // count) for need, count in self._needs.items())
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return max(1, sum(fits))

    def _start(self) -> None:
        # Not restarted by Ray: what the lost one was computing is given to whoever is free first.
        options = {**self._needs, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        actor = self._ray.remote(NodeWorker).options(**options).remote(self._request.limits)
        self._remotes[str(self._started)] = _Remote(actor, starting=actor.facts.remote())
        self._started += 1

    # -- slots -----------------------------------------------------------------------------------------------

    def free(self) -> list[Slot]:
        """Workers without work, those with a loaded subject first; none while lost cells wait for one."""
        if self._again:
            return []
        idle = [Slot(name, one.group, one.node) for name, one in self._idle()]
        return sorted(idle, key=lambda slot: slot.group == "")

    def _idle(self) -> list[tuple[str, _Remote]]:
        return [
            (name, one) for name, one in self._remotes.items() if one.starting is None and one.answers is None
        ]

    def submit(self, slot: Slot, trip: Trip) -> None:
        """Send cells to a worker, or compute them here if only this machine has what they read."""
        if trip.cells[0].cell.step.at_home:
            self._at_home.append(trip)
            self._go_on_at_home()
            self._kept_slot = True
        else:
            self._send(self._remotes[slot.name], list(trip.cells))

    def _send(self, one: _Remote, cells: list[Assignment]) -> None:
        parcel = self._shipping.trip(Trip(tuple(cells)))
        one.left = {assigned.cell.key: assigned for assigned in cells}
        one.group = cells[-1].cell.group or one.group
        one.answers = one.actor.compute.options(num_returns="streaming").remote(parcel)

    # -- what only this machine can do -----------------------------------------------------------------------

    def _go_on_at_home(self) -> None:
        if self._at_home and self._home is None:
            # Small steps; this machine need not have the nodes' device.
            limits = self._request.limits
            limits = replace(limits, compute=changed(limits.compute, device="cpu"))
            self._home = LocalExecutor(
                replace(self._request, limits=limits, jobs=min(2, os.cpu_count() or 1))
            )
        while self._home is not None and self._at_home and (free := self._home.free()):
            trip = self._at_home.popleft()
            self._home_left += len(trip.cells)
            self._home.submit(free[0], trip)

    def _wait_at_home(self, seconds: float) -> list[Ended | Note]:
        if self._home is None or not self._home_left:
            return []
        said = self._home.wait(seconds)
        self._home_left -= sum(isinstance(one, Ended) for one in said)
        self._go_on_at_home()
        return said

    # -- answers ---------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> list[Ended | Note]:
        """What happened within `seconds`."""
        deadline = time.monotonic() + (0.0 if self._kept_slot else seconds)
        self._kept_slot = False
        while True:
            self._said += self._wait_at_home(0.0)
            self._send_again()
            left = max(0.0, deadline - time.monotonic())
            spoke = self._listen(min(left, _POLL_SECONDS) if self._home_left else left)
            self._complain()
            if self._said or spoke or time.monotonic() >= deadline:
                said, self._said = self._said, []
                return said

    def _listen(self, seconds: float) -> bool:
        """Take what workers said; whether any has room for another trip."""
        waiting = {id(ref): name for name, one in self._remotes.items() for ref in _references(one)}
        references = [ref for one in self._remotes.values() for ref in _references(one)]
        if not references:
            time.sleep(min(seconds, _POLL_SECONDS))
            return False
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds, fetch_local=False)
        if ready:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
        before = len(self._idle())
        for reference in ready:
            self._hear(waiting[id(reference)])
        return len(self._idle()) > before

    def _hear(self, name: str) -> None:
        one = self._remotes[name]
        errors = self._ray.exceptions
        try:
            if one.starting is not None:
                self._welcome(one, self._ray.get(one.starting))
            else:
                self._take(one, self._ray.get(next(one.answers)))
        except StopIteration:
            one.answers = None
            if one.left:
                self._lose(name, "it ended without an answer")
        except TransferDamaged as problem:
            self._lose(name, str(problem))
        except errors.RayTaskError as problem:
            if isinstance(problem.cause, UserError):
                raise UserError(f"on node {one.node or 'unknown'}: {problem.cause}") from problem
            self._lose(name, _last_line(problem))
        except errors.RayError as problem:
            self._lose(name, _last_line(problem))

    def _welcome(self, one: _Remote, facts: NodeFacts) -> None:
        here = packages_here()
        there = facts.packages
        other = [f"{name} {there.get(name)}, not {v}" for name, v in here.items() if there.get(name) != v]
        if other:
            raise UserError(
                f"node {facts.name} has {', '.join(other)}: the bits of its results might differ; install "
                "the same versions there"
            )
        new = all(remote.node != facts.name for remote in self._remotes.values())
        if new and facts.unsealed and self._request.limits.sandbox:
            self._said.append(Note(f"readings on node {facts.name} are not sealed: {facts.unsealed}"))
        one.starting, one.node, self._dumb = None, facts.name, 0

    def _take(self, one: _Remote, answers: list[CellAnswer]) -> None:
        for answer in answers:
            self._shipping.unpack(answer, one.left[answer.key])
            del one.left[answer.key]
            self._said.append(Ended(answer.key, answer.outcome))
        self._unheard = time.monotonic()

    # -- losses ----------------------------------------------------------------------------------------------

    def _lose(self, name: str, why: str) -> None:
        """A worker is lost, and with it one chance of the cell it was at; what it left is done elsewhere."""
        one = self._remotes.pop(name)
        with contextlib.suppress(Exception):
            self._ray.kill(one.actor, no_restart=True)
        if one.starting is not None:
            self._dumb += 1
            if self._dumb >= _STARTS:
                raise UserError(
                    f"workers on the cluster end before they begin ({why}); every node needs genbench "
                    f"{packages_here()['genbench']} and the plugins in use, in the Python of `ray start`"
                )
        left = list(one.left.values())
        if left:
            self._said.append(
                Note(f"a worker on {one.node} was lost ({why}); {_cells(len(left))} computed again")
            )
            first = left[0].cell.key
            self._losses[first] += 1
            if self._losses[first] >= _LOSSES:
                reason = f"{_LOSSES} workers were lost while it was computed; the last: {why}"
                self._said.append(Ended(first, Outcome(Status.CRASHED, reason)))
                left = left[1:]
            # Alone, lest it take others with it again.
            self._again.extend([part for part in (left[:1], left[1:]) if part])
        self._start()

    def _send_again(self) -> None:
        for _, one in self._idle():
            if not self._again:
                return
            cells = self._again.popleft()
            for assigned in cells:
                for file in assigned.out.iterdir() if assigned.out.is_dir() else ():
                    file.unlink()  # of an answer that was damaged on its way
            self._send(one, cells)

    def _complain(self) -> None:
        if self._home_left or any(one.starting is None for one in self._remotes.values()):
            self._unheard = time.monotonic()
        elif time.monotonic() - self._unheard > _PATIENCE:
            self._unheard = time.monotonic()
            needs = ", ".join(f"{name} {count:g}" for name, count in self._needs.items())
            self._said.append(Note(f"the cluster has no room for a worker yet (each needs {needs}); waiting"))

    def close(self) -> None:
        """Stop everything at once; what nodes keep on their disks goes with the next worker's start."""
        for one in self._remotes.values():
            with contextlib.suppress(Exception):
                self._ray.kill(one.actor, no_restart=True)
        self._remotes.clear()
        if self._home is not None:
            self._home.close()
        if self._joined:
            self._ray.shutdown()


def _references(one: _Remote) -> list[Any]:
    return [ref for ref in (one.starting, one.answers) if ref is not None]


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"


def _last_line(problem: BaseException) -> str:
    lines = [line for line in str(problem).splitlines() if line.strip()]
    return one_line(f"{type(problem).__name__}: {lines[-1] if lines else ''}", 200)
