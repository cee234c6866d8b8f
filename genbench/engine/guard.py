"""Runs functions in a process of their own, under limits, and turns whatever happens into outcomes.

A forked child shares the parent's memory at the moment of the fork and nothing after: it may change its
model, torch's global state or the random generators, crash or hang, and the parent is as it was. What the
child does is in `genbench.engine.guarded`. Where a device does not survive a fork, the child is a fresh
process, which is told what to do (`genbench.engine.spawned`); it answers alike, under the same limits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from genbench.engine.cells import Cost, Limits, Outcome, Status
from genbench.engine.compute import start_seconds, starts_fresh
from genbench.engine.guarded import Ask, Sealing, Work, data_held, die_with_parent, run_child
from genbench.engine.messages import Begun, Done, Fresh, FreshWork, ReadingsWork, line, parse
from genbench.engine.processes import (
    adopt_orphans,
    children,
    end_others,
    family,
    memory_of,
    peak_of,
    processor_seconds,
    resident,
)
from genbench.engine.sandbox import NOT_SEALED, SEALED, size_of
from genbench.subject.part_messages import PartReply, PartRequest

__all__ = [
    "Answer",
    "Ask",
    "Limits",
    "Work",
    "die_with_parent",
    "kill_group",
    "run_guarded",
    "run_pieces",
    "run_work",
]

_OUTPUT_KEPT = 4096
_MESSAGE_LIMIT = 1 << 24
_PIPE_READS = 4
"""More than a pipe holds; a child that never stops printing must not keep its watch from the clock."""
_POLL_SECONDS = 0.1
"""Between two looks at a child's own memory: one small file of /proc."""
_FAMILY_SECONDS = 3.0
"""Between two looks at the memory of its children too, and at what it wrote to its private folder."""
_START_SECONDS = 60.0
"""For a child to get ready on a machine that is busy; the clock of its work starts with its work."""

_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""For two descriptors and one reading: the default makes and closes a descriptor of its own."""

Answer = Callable[[PartRequest], PartReply]
"""Gives a child the shared part it asks for."""


def run_guarded(work: Work, limits: Limits, answer: Answer | None = None) -> Outcome:
    """Run `work` in a fork of this process; `answer` runs in this process whenever the child asks."""
    ((_, outcome),) = run_pieces([work], limits, answer)
    return outcome


def run_work(
    fresh: FreshWork,
    forked: Callable[[], Sequence[Work]],
    limits: Limits,
    answer: Answer | None = None,
    learn: Callable[[list[str]], None] | None = None,
    seal: Sealing | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """As `run_pieces`: what `forked` gives or, where the device needs it, the same in a fresh process."""
    if starts_fresh(limits.compute):
        return _run_fresh(fresh, limits, answer)
    return run_pieces(forked(), limits, answer, learn, seal)


def run_pieces(
    pieces: Sequence[Work],
    limits: Limits,
    answer: Answer | None = None,
    learn: Callable[[list[str]], None] | None = None,
    seal: Sealing | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Run pieces of work one after another in one fork of this process; (piece, outcome) as each ends.

    Each has the limits for itself. One that takes the process with it, or has to be stopped, is the last to
    have an outcome: those after it were not begun.

    Parameters
    ----------
    learn : told the names of modules that a piece imported, so that the next fork may have them.
    seal : how the fork gives up all but what a reading may see.
    """
    adopt_orphans()
    held, others = data_held(), children(os.getpid())
    started = time.perf_counter()
    ours, theirs = socket.socketpair()
    output_read, output_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        channel, learns = theirs.detach(), learn is not None
        run_child(lambda: pieces, limits, channel, output_write, parent, learn=learns, seal=seal, held=held)
    theirs.close()
    os.close(output_write)
    watch = _Watch(pid, ours, output_read, limits, started, answer, seal=seal)
    try:
        yield from _outcomes(watch, len(pieces), learn)
    finally:
        end_others(others)


def _run_fresh(work: FreshWork, limits: Limits, answer: Answer | None) -> Iterator[tuple[int, Outcome]]:
    started = time.perf_counter()
    ours, theirs = socket.socketpair()
    output_read, output_write = os.pipe()
    for descriptor in (theirs.fileno(), output_write):
        os.set_inheritable(descriptor, True)
    words = [str(number) for number in (os.getpid(), theirs.fileno(), output_write)]
    command = [sys.executable, "-m", "genbench.engine.spawned", *words]
    pid = os.posix_spawn(sys.executable, command, os.environ)
    theirs.close()
    os.close(output_write)
    with contextlib.suppress(OSError):  # it died at once; the watch sees that
        ours.sendall(line(Fresh(work, limits)))
    watch = _Watch(pid, ours, output_read, limits, started, answer, fresh=True)
    yield from _outcomes(watch, len(work.readings) if isinstance(work, ReadingsWork) else 1)


def _outcomes(
    watch: _Watch, pieces: int, learn: Callable[[list[str]], None] | None = None
) -> Iterator[tuple[int, Outcome]]:
    reaped = False
    try:
        for place in range(pieces):
            done, verdict = watch.until_done(place)
            if done is not None:
                outcome = watch.outcome(done)
                if place + 1 < pieces:
                    watch.go_on()
                yield place, outcome
                if learn is not None and done.imported:
                    learn(done.imported)
                continue
            reaped = True
            # Of one that was started and not forked, `wait` counts the process that started it as well.
            alive = peak_of(watch.pid)
            wait_status, dead = _reap(watch.pid)
            peak = alive or dead
            watch.drain_rest()
            status, reason = verdict or watch.forged() or _death(wait_status, watch.tail())
            yield place, Outcome(status, reason, cost=watch.cost(watch.seconds(), peak), output=watch.tail())
            return
    finally:
        if not reaped:
            _reap(watch.pid)
        watch.close()


class _Watch:
    """The parent's side of one child: messages, output, clock and memory."""

    def __init__(
        self,
        pid: int,
        channel: socket.socket,
        output: int,
        limits: Limits,
        started: float,
        answer: Answer | None,
        *,
        fresh: bool = False,
        seal: Sealing | None = None,
    ) -> None:
        self.pid = pid
        self._fresh = fresh
        self._seal = seal
        self._channel = channel
        self._output = output
        self._limits = limits
        self._answer = answer
        self._kept = b""
        self._inbox = b""
        self._forged = False
        self._last_begun = -1
        self._begin(started)
        self._deadline += max(start_seconds(limits.compute), _START_SECONDS)
        if fresh:
            self._base = sys.maxsize  # its work has not begun
        self._selector = _Selector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._selector.register(output, selectors.EVENT_READ)
        os.set_blocking(output, False)

    def _begin(self, now: float) -> None:
        """A piece begins: its clock and its memory are its own."""
        self._began = now
        self._deadline = now + self._limits.seconds
        self._answering = 0.0
        # Only what it has mapped: of a process that closed all descriptors, there is nothing else.
        self._base = resident(self.pid)
        self._processor = processor_seconds(self.pid)
        self._looked, self._family_at = now, now + _FAMILY_SECONDS

    def _begun(self, piece: int) -> None:
        """The child says that a piece begins; once, lest it give itself more time."""
        if self._last_begun == piece:
            return
        self._last_begun = piece
        if piece or self._fresh:
            self._begin(time.perf_counter())
        else:  # what it takes is counted from the fork, but not against its limit
            self._deadline = time.perf_counter() + self._limits.seconds

    def go_on(self) -> None:
        """Let the next piece begin, now that all that this one printed was taken."""
        self._kept = b""
        with contextlib.suppress(OSError):
            self._channel.sendall(b"\n")

    def seconds(self) -> float:
        """Of the piece so far, without those spent on its requests."""
        return time.perf_counter() - self._began - self._answering

    def until_done(self, piece: int) -> tuple[Done | None, tuple[Status, str] | None]:
        """How the piece ended, or why it was stopped; neither if its process died by itself."""
        done, open_ = self._messages(piece)  # a quick piece may have ended before we asked
        if done is not None or not open_:
            return done, None
        while True:
            left = self._deadline - time.perf_counter()
            if left <= 0:
                return None, (
                    Status.TIMEOUT,
                    f"still running after {self._limits.seconds:g} s; --timeout sets the limit",
                )
            for event, _ in self._selector.select(min(left, _POLL_SECONDS)):
                if event.fileobj is self._channel:
                    done, open_ = self._receive(piece)
                    if done is not None or not open_:
                        return done, None
                else:
                    self._drain()
            now = time.perf_counter()
            if now - self._looked >= _POLL_SECONDS and self._grown(now) > self._limits.memory:
                return None, (Status.OUT_OF_MEMORY, _over_memory(self._limits))

    def _receive(self, piece: int) -> tuple[Done | None, bool]:
        try:
            data = self._channel.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            return None, False
        self._inbox += data
        return self._messages(piece)

    def _messages(self, piece: int) -> tuple[Done | None, bool]:
        """Take what has come, up to the end of the piece."""
        while b"\n" in self._inbox:
            text, self._inbox = self._inbox.split(b"\n", 1)
            try:
                message = parse(text, Begun | Done | PartRequest)  # type: ignore[arg-type]
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._forged = True  # the code under guard wrote to our channel
                return None, False
            if isinstance(message, PartRequest) and self._answer is not None:
                self._reply(message)
            elif isinstance(message, PartRequest) or message.piece != piece:
                self._forged = True
                return None, False
            elif isinstance(message, Done):
                return message, True
            else:
                self._begun(piece)
        return None, len(self._inbox) < _MESSAGE_LIMIT

    def _reply(self, request: PartRequest) -> None:
        began = time.perf_counter()
        assert self._answer is not None
        left = msgspec.structs.replace(request, seconds_left=self._deadline - began)
        reply = self._answer(left)
        self._answering += time.perf_counter() - began
        with contextlib.suppress(BrokenPipeError):
            self._channel.sendall(line(reply))

    def outcome(self, done: Done) -> Outcome:
        """What a piece that ended by itself comes to."""
        self._drain()  # it flushed its output before it said so
        seconds = self.seconds() if done.seconds is None else done.seconds
        cost = self.cost(seconds, done.peak_bytes, done.shared_seconds, done.device)
        return Outcome(done.status, done.reason, done.result, cost, self.tail(), fixable=done.fixable)

    def forged(self) -> tuple[Status, str] | None:
        """What to say of a piece that spoke for genbench."""
        return (Status.CRASHED, "its process sent something that is no answer") if self._forged else None

    def cost(self, seconds: float, peak: int, shared_seconds: float = 0.0, device: str = "") -> Cost:
        """What the piece took, and on what; `device`: what its process calls it."""
        compute = self._limits.compute
        device = device or compute.device.partition(":")[0]
        sandbox = NOT_SEALED if self._seal is None else SEALED
        # Of one that is gone nobody can tell any more.
        processor = max(0.0, processor_seconds(self.pid) - self._processor)
        return Cost(seconds, shared_seconds, peak, device, compute.threads, sandbox, processor)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_READS):
                data = os.read(self._output, 1 << 16)
                if not data:
                    with contextlib.suppress(KeyError):
                        self._selector.unregister(self._output)
                    return
                self._kept = (self._kept + data)[-_OUTPUT_KEPT:]

    def drain_rest(self) -> None:
        """Take the last output of a child that is gone."""
        with contextlib.suppress(OSError):
            while data := os.read(self._output, 1 << 16):
                self._kept = (self._kept + data)[-_OUTPUT_KEPT:]

    def tail(self) -> str:
        """The last of what the piece printed."""
        return self._kept.decode(errors="replace")

    def _grown(self, now: float) -> int:
        """Bytes that it holds more than when it began."""
        self._looked = now
        return self._memory(now) - self._base

    def _memory(self, now: float) -> int:
        """Resident bytes: of the child, and now and then of the processes it started as well."""
        if now < self._family_at:
            return memory_of(self.pid)
        self._family_at = now + _FAMILY_SECONDS
        written = 0 if self._seal is None else size_of(self._seal.private)
        return written + sum(map(memory_of, family(self.pid)))

    def close(self) -> None:
        """Close the child's descriptors."""
        self._selector.close()
        self._channel.close()
        os.close(self._output)


def _reap(pid: int) -> tuple[int, int]:
    """End a child and whatever it started; its wait status and its largest resident memory."""
    kill_group(pid)
    _, wait_status, usage = os.wait4(pid, 0)
    return wait_status, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def kill_group(pid: int) -> None:
    """Kill a child that made a process group of its own, with all that is in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # the child and whatever it started
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # in case it had not made its group yet


def _over_memory(limits: Limits) -> str:
    return f"asked for more than {limits.memory / 2**20:,.0f} MiB of memory; --memory sets the limit"


def _death(wait_status: int, output: str) -> tuple[Status, str]:
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return Status.CRASHED, f"its process ended with exit code {code} before it gave an answer"
    name = signal.Signals(-code).name
    if "bad_alloc" in output:
        return Status.OUT_OF_MEMORY, f"its process could not allocate memory and was killed by {name}"
    return Status.CRASHED, f"its process was killed by signal {-code} ({name})"
