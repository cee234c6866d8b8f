"""Runs a function in a forked process of its own, under limits, and turns whatever happens into an outcome.

The child shares the parent's memory at the moment of the fork and nothing after: it may change its model,
torch's global state or the random generators, crash or hang, and the parent is as it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from genbench.engine.cells import Cost, Outcome, Status
from genbench.engine.value import InvalidResult
from genbench.errors import NotApplicable, described, one_line

__all__ = ["Ask", "Limits", "die_with_parent", "run_guarded"]

_OUTPUT_KEPT = 4096
_MESSAGE_LIMIT = 1 << 24
_POLL_SECONDS = 0.1

Ask = Callable[[Mapping[str, Any]], dict[str, Any]]
"""In the child: send a request to the parent, wait for its answer."""


@dataclass(frozen=True)
class Limits:
    """What one cell may use."""

    seconds: float
    memory: int
    """Bytes, on top of what the process holds before the cell's own code starts."""


def run_guarded(
    work: Callable[[Ask], Mapping[str, Any]],
    limits: Limits,
    answer: Callable[[dict[str, Any], float], dict[str, Any]] | None = None,
) -> Outcome:
    """Run `work` in a fork of this process.

    `answer(request, seconds_left)` runs in this process whenever the child asks for something.
    """
    started = time.perf_counter()
    ours, theirs = socket.socketpair()
    output_read, output_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(work, limits, theirs.detach(), output_write, parent)  # never returns
    theirs.close()
    os.close(output_write)
    watch = _Watch(pid, ours, output_read, limits, started, answer)
    try:
        message, verdict = watch.until_done()
    finally:
        _kill_group(pid)
        _, wait_status, usage = os.wait4(pid, 0)
        watch.close()
    cost = Cost(
        seconds=time.perf_counter() - started - watch.answering,
        peak_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    )
    if verdict is None and message is None:
        verdict = _death(wait_status, watch.tail())
    if verdict is not None:
        status, reason = verdict
        return Outcome(status, reason, cost=cost, output=watch.tail())
    assert message is not None
    return Outcome(Status(message["status"]), message["reason"], message["result"], cost, watch.tail())


class _Watch:
    """The parent's side of one child: messages, output, clock and memory."""

    def __init__(
        self,
        pid: int,
        channel: socket.socket,
        output: int,
        limits: Limits,
        started: float,
        answer: Callable[[dict[str, Any], float], dict[str, Any]] | None,
    ) -> None:
        self._process = psutil.Process(pid)
        self._base = self._resident()
        self._channel = channel
        self._output = output
        self._limits = limits
        self._deadline = started + limits.seconds
        self._answer = answer
        self._kept = b""
        self._inbox = b""
        self.answering = 0.0
        """Seconds spent on the child's requests."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._selector.register(output, selectors.EVENT_READ)

    def until_done(self) -> tuple[dict[str, Any] | None, tuple[Status, str] | None]:
        """The child's last message, or why it was stopped; neither if it died by itself."""
        while True:
            left = self._deadline - time.perf_counter()
            if left <= 0:
                return None, (
                    Status.TIMEOUT,
                    f"still running after {self._limits.seconds:g} s; --timeout sets the limit",
                )
            for event, _ in self._selector.select(min(left, _POLL_SECONDS)):
                if event.fileobj is self._channel:
                    message, open_ = self._receive()
                    if message is not None or not open_:
                        return message, None
                else:
                    self._drain()
            if self._resident() - self._base > self._limits.memory:
                return None, (Status.OUT_OF_MEMORY, _over_memory(self._limits))

    def _receive(self) -> tuple[dict[str, Any] | None, bool]:
        data = self._channel.recv(1 << 16)
        if not data:
            return None, False
        self._inbox += data
        while b"\n" in self._inbox:
            line, self._inbox = self._inbox.split(b"\n", 1)
            try:
                message = json.loads(line)
                if message["type"] == "done":
                    return _checked(message), True
                request = dict(message["request"])
            except (ValueError, KeyError, TypeError):
                return None, False  # the code under guard wrote to our channel
            self._reply(request)
        return None, len(self._inbox) < _MESSAGE_LIMIT

    def _reply(self, request: dict[str, Any]) -> None:
        began = time.perf_counter()
        assert self._answer is not None
        reply = self._answer(request, self._deadline - began)
        self.answering += time.perf_counter() - began
        with contextlib.suppress(BrokenPipeError):
            self._channel.sendall(json.dumps(reply).encode() + b"\n")

    def _drain(self) -> None:
        data = os.read(self._output, 1 << 16)
        if data:
            self._kept = (self._kept + data)[-_OUTPUT_KEPT:]
        else:
            self._selector.unregister(self._output)

    def tail(self) -> str:
        """The last of what the child printed."""
        return self._kept.decode(errors="replace")

    def _resident(self) -> int:
        try:
            family = [self._process, *self._process.children(recursive=True)]
            return sum(process.memory_info().rss for process in family)
        except psutil.Error:
            return 0

    def close(self) -> None:
        """Take the last output and close the child's descriptors."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            while data := os.read(self._output, 1 << 16):
                self._kept = (self._kept + data)[-_OUTPUT_KEPT:]
        self._selector.close()
        self._channel.close()
        os.close(self._output)


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    Status(message["status"])
    return {key: message[key] for key in ("status", "reason", "result")}


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


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # the child and whatever it started
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # in case it had not made its group yet


# -- the child's side --------------------------------------------------------------------------------


def _child(
    work: Callable[[Ask], Mapping[str, Any]], limits: Limits, channel: int, output: int, parent: int
) -> None:
    try:
        _prepare(channel, output, limits, parent)
        _send(channel, _attempt(work, _asker(channel)))
    except BaseException:
        # Nothing may unwind into the parent's code, which lives on this stack too.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(70)


def _prepare(channel: int, output: int, limits: Limits, parent: int) -> None:
    os.setsid()
    die_with_parent(parent)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    # The parent's pipes are not the guarded code's business.
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        if descriptor > 2 and descriptor != channel:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(limits.memory)


def _limit_memory(memory: int) -> None:
    """Let allocations fail inside the process, where they become a readable reason."""
    if not sys.platform.startswith("linux"):
        return  # the parent's watch on resident memory is all there is elsewhere
    with open("/proc/self/status") as status:
        held = next(int(line.split()[1]) for line in status if line.startswith("VmData:")) * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + memory
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _lift_memory_limit() -> None:
    if sys.platform.startswith("linux"):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _attempt(work: Callable[[Ask], Mapping[str, Any]], ask: Ask) -> dict[str, Any]:
    try:
        result = dict(work(ask))
    except NotApplicable as refusal:
        return _done(Status.NOT_APPLICABLE, one_line(str(refusal)) or "the measure gave no reason")
    except InvalidResult as problem:
        return _done(Status.INVALID, one_line(str(problem)))
    except BaseException as problem:
        problem.__traceback__, trace = None, problem.__traceback__
        _lift_memory_limit()
        if _is_memory(problem):
            del trace
            return _done(Status.OUT_OF_MEMORY, f"ran out of its memory limit: {described(problem)}")
        traceback.print_exception(problem.with_traceback(trace))
        return _done(Status.FAILED, described(problem) + _where(trace))
    return _done(Status.OK, "", result)


def _done(status: Status, reason: str, result: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "done", "status": str(status), "reason": reason, "result": result or {}}


def _is_memory(problem: BaseException) -> bool:
    if isinstance(problem, MemoryError):
        return True
    text = str(problem)
    return isinstance(problem, RuntimeError) and (
        "can't allocate memory" in text or "not enough memory" in text or "bad_alloc" in text
    )


def _where(trace: Any) -> str:
    frames = traceback.extract_tb(trace)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _asker(channel: int) -> Ask:
    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        _send(channel, {"type": "ask", "request": dict(request)})
        received = b""
        while not received.endswith(b"\n"):
            data = os.read(channel, 1 << 16)
            if not data:
                os._exit(71)
            received += data
        reply: dict[str, Any] = json.loads(received)
        return reply

    return ask


def _send(channel: int, message: Mapping[str, Any]) -> None:
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(channel, data) :]


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however the parent dies."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(72)
