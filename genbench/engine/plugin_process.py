"""A plugin in a process of its own: imported once, there; each of its readings is forked from there.

The process is forked off a host, which has never run a plugin's code. Whatever the import or a reading does
reaches this process at most, and with it readings of the same plugin; the shared parts that they ask for are
computed by the host.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from genbench.engine.cells import Limits, Outcome, Status
from genbench.engine.compute import start_seconds, starts_fresh
from genbench.engine.guard import Answer, Ask, Work, kill_group, run_work
from genbench.engine.guarded import Sealing, cut_off, flush, keep_status_open, limit_memory
from genbench.engine.messages import (
    Ended,
    Found,
    Order,
    Reading,
    ReadingsWork,
    Ready,
    SharedWork,
    line,
    parse,
)
from genbench.engine.processes import (
    adopt_orphans,
    children,
    end_others,
    family,
    memory_of,
    processor_seconds,
    resident,
)
from genbench.engine.sandbox import close_plugin, emptied, size_of
from genbench.engine.works import compute_shared, load_network, take_plugins
from genbench.errors import described
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Source, source_measures
from genbench.sealing.seal import Seal, close_further
from genbench.subject.part_messages import PartReply, PartRequest
from genbench.subject.subject import TrainedNetwork

__all__ = ["PluginProcess"]

_GRACE_SECONDS = 30.0
"""It watches its readings itself; past this much more than their limit, it is stuck."""
_IMPORT_SECONDS = 60.0
"""By the clock on the wall, for an import that has its limit in processor time: the machine may be busy."""
_POLL_SECONDS = 0.1
_MESSAGE_LIMIT = 1 << 24


class PluginProcess:
    """The host's side: orders go there, outcomes and requests for parts come back.

    Parameters
    ----------
    private : a folder for what it writes, which this empties after each reading.
    seal : what it may see, if it is to be sealed.
    """

    def __init__(
        self,
        source: Source,
        limits: Limits,
        held: TrainedNetwork | None,
        private: Path,
        seal: Seal | None,
    ) -> None:
        adopt_orphans()
        self._others = children(os.getpid())
        self._private = private
        self.sealed = seal is not None
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        # Its pages are ours at first: what an import holds comes on top, however large this process is.
        self._base = resident(parent)
        self._pid = os.fork()
        if self._pid == 0:
            _serve(source, limits, held, theirs.detach(), parent, seal)  # never returns
        theirs.close()
        self._channel = ours
        self._inbox = b""
        self._limits = limits
        patience = max(limits.seconds, _IMPORT_SECONDS)
        self.ready = isinstance(self._receive(patience, self._imports_too_long), Ready)
        """Whether the plugin could be imported."""
        self._base = resident(self._pid)

    def _imports_too_long(self) -> str:
        late = processor_seconds(self._pid) > self._limits.seconds
        return "late" if late else self._holds_too_much()

    def _holds_too_much(self) -> str:
        """Whether it and its readings hold more than one may: once it is sealed, it cannot watch them."""
        if not self.sealed:
            return ""
        first, *others = family(self._pid)
        here = resident(first)
        # A reading begins with the pages of the process that it is forked from.
        growth = max(0, here - self._base) + sum(max(0, memory_of(one) - here) for one in others)
        held = growth + size_of(self._private)
        return "memory" if held > self._limits.memory else ""

    def read(self, order: Order, answer: Answer) -> Iterator[tuple[str, Outcome]]:
        """(key, outcome) of the readings; if the process is lost with one, those after it have none."""
        with contextlib.suppress(OSError):  # it died between two orders; the next lines say so
            self._channel.sendall(line(order))
        self._limits = order.limits
        patience = order.limits.seconds + start_seconds(order.limits.compute) + _GRACE_SECONDS
        for reading in order.readings:
            deadline = time.monotonic() + patience
            while True:
                message = self._receive(deadline - time.monotonic(), self._holds_too_much)
                if not isinstance(message, PartRequest):
                    break
                began = time.monotonic()
                reply = answer(message)
                deadline += time.monotonic() - began
                with contextlib.suppress(OSError):
                    self._channel.sendall(line(reply))
            if not isinstance(message, Ended) or message.key != reading.key:
                self.close()
                status, what = _LOST.get(message if isinstance(message, str) else "", _DIED)
                yield reading.key, Outcome(status, what)
                return
            yield reading.key, message.outcome
            if not emptied(self._private):
                self.close()
                return

    def _receive(self, seconds: float, wrong: Callable[[], str]) -> Ended | PartRequest | Ready | str:
        """The next message, or in one word why there is none.

        Parameters
        ----------
        wrong : asked now and then; a word to stop waiting with.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._inbox:
            left = deadline - time.monotonic()
            if left <= 0:
                return "late"
            if not select.select([self._channel], [], [], min(left, _POLL_SECONDS))[0]:
                if word := wrong():
                    return word
                continue
            try:
                data = self._channel.recv(1 << 16)
            except OSError:
                return "died"
            if not data:
                return "died"
            self._inbox += data
            if len(self._inbox) > _MESSAGE_LIMIT:
                return "forged"
        text, self._inbox = self._inbox.split(b"\n", 1)
        try:
            message: Ended | PartRequest | Ready = parse(text, Ended | PartRequest | Ready)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return "forged"  # the plugin's code wrote to our channel
        return message

    @property
    def alive(self) -> bool:
        """Whether it can take orders."""
        return self.ready and self._pid > 0

    def close(self) -> None:
        """End it, and with it its readings."""
        if self._pid > 0:
            others = children(os.getpid()) - {self._pid}
            kill_group(self._pid)
            os.waitpid(self._pid, 0)
            end_others(others)  # what it left running came to us when it died
            self._pid = 0
            self._channel.close()


_DIED = (Status.CRASHED, "the process of its plugin died")
_LOST = {
    "late": (Status.TIMEOUT, "the process of its plugin hangs"),
    "memory": (
        Status.OUT_OF_MEMORY,
        "it holds more memory, or wrote more to disk, than a reading may; --memory sets the limit",
    ),
    "forged": (Status.CRASHED, "the process of its plugin sent something that is no answer"),
}


# -- inside ------------------------------------------------------------------------------------------------


def _serve(
    source: Source,
    limits: Limits,
    held: TrainedNetwork | None,
    channel: int,
    parent: int,
    seal: Seal | None,
) -> None:
    try:
        # What an import prints is shown where it fails: in the process of a reading.
        kept = -1 if seal is None else seal.descriptor
        cut_off(channel, os.open(os.devnull, os.O_WRONLY), parent, kept)
        sealing = None
        if seal is not None:
            keep_status_open()
            close_plugin(seal)
            sealing = Sealing(partial(close_further, seal.private), seal.private)
        limit_memory(limits.memory)
        measures = source_measures(source, prepare=True)
        flush()  # what the import left unsaid is no reading's
        gc.collect()
        gc.freeze()  # as in the nursery: what readings inherit is not to be copied by their collections
        with socket.socket(fileno=channel) as host:
            _take_orders(host, source, measures, held, sealing)
    finally:
        os._exit(73)


def _take_orders(
    host: socket.socket,
    source: Source,
    measures: Mapping[str, Measure],
    held: TrainedNetwork | None,
    seal: Sealing | None,
) -> None:
    lines = host.makefile("rb")

    def forward(request: PartRequest) -> PartReply:
        host.sendall(line(request))
        return parse(lines.readline(), PartReply)

    host.sendall(line(Ready()))
    group, trip = "", None
    for text in lines:
        order = parse(text, Order)
        if trip is None or order.network.group != group:
            group, trip = order.network.group, _Network(source, measures, order, held, forward, seal)
        for reading in order.readings:
            host.sendall(line(Ended(reading.key, trip.read(reading, order.limits))))


class _Network:
    """One network in the process of a plugin, and what the plugin's measures share of it."""

    def __init__(
        self,
        source: Source,
        measures: Mapping[str, Measure],
        order: Order,
        held: TrainedNetwork | None,
        forward: Answer,
        seal: Sealing | None,
    ) -> None:
        self._source = source
        self._seal = seal
        self._measures = measures
        self._order = order
        self._forward = forward
        self._own: dict[str, PartReply] = {}
        self._network, self._problem = held, ""
        if order.network.loader and not starts_fresh(order.limits.compute):
            try:
                self._network = load_network(order.network)
                # Asked for by every reading. Here it takes half of what it takes in a child, which copies
                # every page that it touches.
                _ = self._network.finite
                self._network.learn_to_fold()
            except Exception as problem:
                self._problem = described(problem)

    def read(self, reading: Reading, limits: Limits) -> Outcome:
        """Take a reading."""
        fresh = ReadingsWork(self._source, self._order.network, self._order.part_seed, [reading])
        return self._guarded(fresh, partial(self._take, reading), limits)

    def _guarded(self, fresh: ReadingsWork | SharedWork, work: Work, limits: Limits) -> Outcome:
        ((_, outcome),) = run_work(fresh, lambda: [work], limits, self.answer, seal=self._seal)
        return outcome

    def _take(self, reading: Reading, ask: Ask) -> Found:
        return take_plugins(self._measures[reading.measure], reading, self._loaded(), ask)

    def _loaded(self) -> TrainedNetwork:
        if self._network is None:
            raise RuntimeError(f"the subject could not be loaded: {self._problem}")
        return self._network

    def answer(self, request: PartRequest) -> PartReply:
        """Give a child a part: genbench's own come from the host, the plugin's from here."""
        if not request.function:
            return self._forward(request)
        if request.function not in self._own:
            limits = replace(self._order.limits, seconds=max(request.seconds_left, 0.0))
            fresh = SharedWork(self._source, self._order.network, self._order.part_seed, request.function)
            outcome = self._guarded(fresh, partial(self._compute, request.function), limits)
            reply = PartReply(str(outcome.status), outcome.reason)
            if outcome.status is Status.OK:
                reply = PartReply(reply.status, seconds=outcome.cost.seconds, **outcome.result)
            elif outcome.status is not Status.NOT_APPLICABLE:
                return reply
            self._own[request.function] = reply
        return self._own[request.function]

    def _compute(self, function: str, ask: Ask) -> Mapping[str, Any]:
        return compute_shared(self._loaded(), function, self._order.part_seed, ask)
