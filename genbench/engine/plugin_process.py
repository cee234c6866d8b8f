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
from pathlib import Path
from typing import Any

import msgspec

from genbench.engine.cells import Limits, Outcome, Status
from genbench.engine.guard import Answer, Ask, kill_group, run_guarded
from genbench.engine.guarded import cut_off, limit_memory
from genbench.engine.messages import Ended, Found, NetworkPlace, Order, Reading, Ready, line, parse
from genbench.engine.steps import load_named
from genbench.engine.taking import take
from genbench.errors import described
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Source, source_measures
from genbench.subject.part_messages import PartReply, PartRequest
from genbench.subject.parts import CountedParts, asked
from genbench.subject.subject import TrainedNetwork

__all__ = ["PluginProcess", "load_network"]

_GRACE_SECONDS = 20.0
"""It watches its readings itself; past this much more than their limit, it is stuck."""


def load_network(place: NetworkPlace) -> TrainedNetwork:
    """Load a network from the folders of its cells."""
    folders = {name: Path(folder) for name, folder in place.folders.items()}
    network: TrainedNetwork = load_named(place.loader)(place.name, **folders, **place.options)
    return network


class PluginProcess:
    """The host's side: orders go there, outcomes and requests for parts come back."""

    def __init__(self, source: Source, limits: Limits, held: TrainedNetwork | None) -> None:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(source, limits, held, theirs.detach(), parent)  # never returns
        theirs.close()
        self._channel = ours
        self._inbox = b""
        self.ready = isinstance(self._receive(limits.seconds), Ready)
        """Whether the plugin could be imported."""

    def read(self, order: Order, answer: Answer) -> Iterator[tuple[str, Outcome]]:
        """(key, outcome) of the readings; if the process is lost with one, those after it have none."""
        try:
            self._channel.sendall(line(order))
        except OSError:
            pass  # it died between two orders; the next lines say so
        for reading in order.readings:
            deadline = time.monotonic() + order.limits.seconds + _GRACE_SECONDS
            while True:
                message = self._receive(deadline - time.monotonic())
                if not isinstance(message, PartRequest):
                    break
                began = time.monotonic()
                reply = answer(message)
                deadline += time.monotonic() - began
                with contextlib.suppress(OSError):
                    self._channel.sendall(line(reply))
            if not isinstance(message, Ended) or message.key != reading.key:
                self.close()
                late = time.monotonic() >= deadline
                status, what = (Status.TIMEOUT, "hangs") if late else (Status.CRASHED, "died")
                yield reading.key, Outcome(status, f"the process of its plugin {what}")
                return
            yield reading.key, message.outcome

    def _receive(self, seconds: float) -> Ended | PartRequest | Ready | None:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._inbox:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._channel], [], [], left)[0]:
                return None
            try:
                data = self._channel.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._inbox += data
        text, self._inbox = self._inbox.split(b"\n", 1)
        try:
            return parse(text, Ended | PartRequest | Ready)  # type: ignore[arg-type]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None  # the plugin's code wrote to our channel

    @property
    def alive(self) -> bool:
        """Whether it can take orders."""
        return self.ready and self._pid > 0

    def close(self) -> None:
        """End it, and with it its readings."""
        if self._pid > 0:
            kill_group(self._pid)
            os.waitpid(self._pid, 0)
            self._pid = 0
            self._channel.close()


# -- inside ------------------------------------------------------------------------------------------------


def _serve(source: Source, limits: Limits, held: TrainedNetwork | None, channel: int, parent: int) -> None:
    try:
        # What an import prints is shown where it fails: in the process of a reading.
        cut_off(channel, os.open(os.devnull, os.O_WRONLY), parent)
        limit_memory(limits.memory)
        measures = source_measures(source, prepare=True)
        gc.collect()
        gc.freeze()  # as in the nursery: what readings inherit is not to be copied by their collections
        with socket.socket(fileno=channel) as host:
            _take_orders(host, measures, held)
    finally:
        os._exit(73)


def _take_orders(host: socket.socket, measures: Mapping[str, Measure], held: TrainedNetwork | None) -> None:
    lines = host.makefile("rb")

    def forward(request: PartRequest) -> PartReply:
        host.sendall(line(request))
        return parse(lines.readline(), PartReply)

    host.sendall(line(Ready()))
    group = ""
    for text in lines:
        order = parse(text, Order)
        problem = None
        if order.network.loader and order.network.group != group:
            try:
                held, group = load_network(order.network), order.network.group
                if len(order.readings) > 1:
                    _ = held.model  # once, for all that are forked from here
            except Exception as failure:
                problem = failure
        for reading in order.readings:
            work = _work(measures, reading, held, problem)
            outcome = run_guarded(work, order.limits, forward)
            host.sendall(line(Ended(reading.key, outcome)))


def _work(
    measures: Mapping[str, Measure],
    reading: Reading,
    network: TrainedNetwork | None,
    problem: Exception | None,
) -> Callable[[Ask], Found | Mapping[str, Any]]:
    def work(ask: Ask) -> Found:
        if problem is not None:
            raise RuntimeError(f"the subject could not be loaded: {described(problem)}")
        assert network is not None
        return take(measures[reading.measure], reading, network, CountedParts({}, {}, asked(ask)))

    return work
