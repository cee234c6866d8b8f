"""A guarded process from inside: it cuts itself off, runs pieces of work, and says what came of each."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import msgspec

from genbench.engine.cells import Limits, Result, Status
from genbench.engine.compute import begin, device_name
from genbench.engine.fixable import fixable
from genbench.engine.messages import Begun, Done, Found, line, parse
from genbench.engine.value import InvalidResult
from genbench.errors import NotApplicable, described, one_line
from genbench.subject.part_messages import PartReply, PartRequest

__all__ = [
    "Ask",
    "Sealing",
    "Work",
    "cut_off",
    "data_held",
    "die_with_parent",
    "flush",
    "keep_status_open",
    "limit_memory",
    "next_line",
    "run_child",
]

Ask = Callable[[PartRequest], PartReply]
"""In the child: send a request to the parent, wait for its answer."""
Work = Callable[[Ask], Result | Found]
"""What a child does: JSON values come of it."""


_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


@dataclass(frozen=True)
class Sealing:
    """How a child gives up all but what a reading may see, and where it may write."""

    close: Callable[[], None]
    """Called in the child, before its work."""
    private: Path
    descriptor: int = -1
    """Kept open until then."""
    foreign: bool = False
    """Whether its work is a plugin's: then no descriptor stays open, and its memory limit is for good."""


def run_child(
    prepare: Callable[[], Sequence[Work]],
    limits: Limits,
    channel: int,
    output: int,
    parent: int,
    *,
    learn: bool = False,
    seal: Sealing | None = None,
    held: int | None = None,
) -> None:
    """Be the child: run all pieces that `prepare` gives, then end the process.

    Parameters
    ----------
    learn : say which modules they imported.
    held : bytes of data that this process began with, where it cannot ask the kernel itself.
    """
    try:
        cut_off(channel, output, parent, -1 if seal is None else seal.descriptor)
        begin(limits.compute, limits.memory)
        device = device_name(limits.compute.device)
        if seal is not None:
            if held is None and seal.foreign:
                held = _own_bytes(b"VmData")
            elif held is None:
                keep_status_open()
            seal.close()
            _SEALED.append(True)
        pieces = prepare()
        ask = _asker(channel)
        known = len(sys.modules)
        for place, work in enumerate(pieces):
            if place:
                next_line(channel)  # what the last piece printed was taken: now this one may print
                _forget_peak()
            limit_memory(limits.memory, held)
            _send(channel, Begun(place))
            done = _attempt(place, work, ask)
            if device != "cpu":
                done = msgspec.structs.replace(done, device=device)
            flush()
            if learn and len(sys.modules) > known:
                done = msgspec.structs.replace(done, imported=_imported_since(known))
                known = len(sys.modules)
            _send(channel, done)
    except BaseException:
        # Nothing may unwind into the parent's code, which lives on this stack too.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        flush()
        os._exit(70)


def _imported_since(known: int) -> list[str]:
    """The latest modules; to look at all would touch, and so copy, a page of the parent's for each."""
    return list(islice(reversed(sys.modules), len(sys.modules) - known))[::-1]


def flush() -> None:
    """Let everything that was printed go out."""
    for stream in (sys.stdout, sys.stderr, *_STREAMS[1:]):
        with contextlib.suppress(BaseException):  # the guarded code may have put anything in their place
            stream.flush()


_STREAMS: list[TextIO] = []
"""Of a process that was cut off before this one was forked from it: they write to whatever 0, 1 and 2 are."""


def cut_off(channel: int, output: int, parent: int, kept: int = -1) -> None:
    """Leave the parent's terminal, pipes and signals, and all its descriptors but two; die when it dies."""
    os.setsid()
    die_with_parent(parent)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    _close_all_but(channel, kept)
    if not _usable_streams():
        _STREAMS[:] = (
            open(0, closefd=False),  # noqa: SIM115
            open(1, "w", buffering=1, errors="replace", closefd=False),  # noqa: SIM115
            open(2, "w", buffering=1, errors="replace", closefd=False),  # noqa: SIM115
        )
        faulthandler.enable(file=_STREAMS[2])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdin, sys.stdout, sys.stderr = _STREAMS


def _usable_streams() -> bool:
    """Whether there are streams of a parent that was cut off itself; its plugin may have closed them."""
    try:
        return bool(_STREAMS) and not any(stream.closed for stream in _STREAMS)
    except ValueError:  # detached
        return False


def _close_all_but(channel: int, other: int) -> None:
    """The parent's pipes are not the guarded code's business."""
    close_range = getattr(_LIBC, "close_range", None)  # of Linux, one call for all between two
    kept = [2, *sorted({channel, other} - {-1})]
    ends = [*(number - 1 for number in kept[1:]), _LAST]
    if close_range and not any(
        close_range(first + 1, last, 0) for first, last in zip(kept, ends, strict=True) if first != last
    ):
        return
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        if descriptor > 2 and descriptor not in (channel, other):
            with contextlib.suppress(OSError):
                os.close(descriptor)


_LAST = ctypes.c_uint(-1)
"""The largest descriptor that there can be."""


_TO_SAY_SO = 64 * 2**20
"""Bytes beyond its limit for a process that can lift it no further, to say what became of it."""


def limit_memory(memory: int, held: int | None = None) -> None:
    """Let allocations beyond what is held now and `memory` fail in here, where they become a reason.

    Parameters
    ----------
    held : what is held now, where nothing from outside watches this process; the limit is then for good.
    """
    if not sys.platform.startswith("linux"):
        return  # the parent's watch on resident memory is all there is elsewhere
    wanted = memory + (_own_bytes(b"VmData") if held is None else held)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if held is not None and (hard == resource.RLIM_INFINITY or hard > wanted + _TO_SAY_SO):
        hard = wanted + _TO_SAY_SO
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _lift_memory_limit() -> None:
    if sys.platform.startswith("linux"):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


_KEPT_OPEN: dict[str, int] = {}
"""Files of this process in /proc, by name, which it cannot open any more once it is sealed."""
_SEALED: list[bool] = []


def keep_status_open() -> None:
    """Before this process is sealed: have at hand what the kernel says of it."""
    for name, mode in (("status", os.O_RDONLY), ("clear_refs", os.O_WRONLY)):
        with contextlib.suppress(OSError):
            _KEPT_OPEN[name] = os.open(f"/proc/self/{name}", mode)


def data_held() -> int | None:
    """Bytes of data of this process, to tell a child that cannot ask; None if a child can."""
    return _own_bytes(b"VmData") if "status" in _KEPT_OPEN else None


def _own_bytes(name: bytes) -> int:
    """What the kernel says of this process under `name`."""
    # Without Python's files: what a child touches, it copies.
    kept = _KEPT_OPEN.get("status")
    status = os.open("/proc/self/status", os.O_RDONLY) if kept is None else kept
    text = os.pread(status, 1 << 14, 0)
    if kept is None:
        os.close(status)
    entry = b"\n" + name + b":"
    return int(text[text.index(entry) + len(entry) :].split(None, 1)[0]) * 1024


def _forget_peak() -> None:
    """Let the largest resident memory be that of the next piece alone, where the kernel can forget."""
    with contextlib.suppress(OSError):
        if "clear_refs" in _KEPT_OPEN:
            os.write(_KEPT_OPEN["clear_refs"], b"5")
        else:
            Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    # A program that was started takes over the peak of the process that started it, and looks as large as
    # that ever was; its memory's own peak does not. A sealed one cannot ask, but was forked, and begins anew.
    if sys.platform.startswith("linux") and not _SEALED:
        return _own_bytes(b"VmHWM")
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _attempt(piece: int, work: Work, ask: Ask) -> Done:
    try:
        found = work(ask)
        if not isinstance(found, Found):
            return Done(piece, Status.OK, result=dict(found), peak_bytes=_peak())
        return Done(piece, Status.OK, "", dict(found.result), _peak(), found.seconds, found.shared_seconds)
    except NotApplicable as refusal:
        reason = one_line(str(refusal)) or "the measure gave no reason"
        return Done(piece, Status.NOT_APPLICABLE, reason, peak_bytes=_peak())
    except InvalidResult as problem:
        return Done(piece, Status.INVALID, one_line(str(problem)), peak_bytes=_peak())
    except BaseException as problem:
        problem.__traceback__, trace = None, problem.__traceback__
        _lift_memory_limit()
        if _is_memory(problem):
            del trace
            reason = f"ran out of its memory limit: {described(problem)}"
            return Done(piece, Status.OUT_OF_MEMORY, reason, peak_bytes=_peak())
        traceback.print_exception(problem.with_traceback(trace))
        refused = isinstance(problem, OSError) and problem.errno in (errno.EPERM, errno.EACCES, errno.EXDEV)
        why = _REFUSED if _SEALED and refused else ""
        reason = described(problem) + _where(trace) + why
        return Done(piece, Status.FAILED, reason, peak_bytes=_peak(), fixable=fixable(problem))


_REFUSED = "; a reading is sealed: it has its network and its code, but no other files, network or processes"


_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory")
"""What torch says of the CPU, twice, the library of C++, and devices."""


def _is_memory(problem: BaseException) -> bool:
    if isinstance(problem, MemoryError):
        return True
    text = str(problem)
    return isinstance(problem, RuntimeError) and (any(words in text for words in _NO_MEMORY))


def _where(trace: Any) -> str:
    frames = traceback.extract_tb(trace)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _asker(channel: int) -> Ask:
    def ask(request: PartRequest) -> PartReply:
        _send(channel, request)
        return parse(next_line(channel), PartReply)

    return ask


def next_line(channel: int) -> bytes:
    """What the parent says next; without a parent there is nothing left to do."""
    received = b""
    while not received.endswith(b"\n"):
        data = os.read(channel, 1 << 16)
        if not data:
            os._exit(71)
        received += data
    return received


def _send(channel: int, message: object) -> None:
    data = memoryview(line(message))
    while data:
        data = data[os.write(channel, data) :]


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however the parent dies."""
    if _LIBC is not None:
        pr_set_pdeathsig = 1
        _LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(72)
