"""What processes of readings hold and leave behind, seen from outside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

__all__ = [
    "adopt_orphans",
    "children",
    "end_others",
    "family",
    "memory_of",
    "peak_of",
    "processor_seconds",
    "resident",
]

_LINUX = sys.platform.startswith("linux")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OF_NO_FILE = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")
"""How descriptors of memory begin that no process need have mapped."""


def resident(pid: int) -> int:
    """Resident bytes of one process, what it shares included; 0 if it is gone."""
    try:
        if not _LINUX:
            return int(psutil.Process(pid).memory_info().rss)
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, psutil.Error):
        return 0


def memory_of(pid: int) -> int:
    """Bytes that one process holds: resident ones, and those of memory files that it has not mapped."""
    return resident(pid) + _unmapped(pid)


def peak_of(pid: int) -> int:
    """The most resident bytes that a living process has had; 0 if it is dead, or the kernel does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
        return int(status.partition(b"VmHWM:")[2].split(None, 1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


def _unmapped(pid: int) -> int:
    if not _LINUX:
        return 0
    held: dict[tuple[int, int], int] = {}
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()).startswith(_OF_NO_FILE):
                    about = descriptor.stat()
                    held[about.st_dev, about.st_ino] = about.st_blocks * 512
        if not any(held.values()):
            return 0
        status = Path(f"/proc/{pid}/status").read_bytes()
        mapped = int(status.partition(b"RssShmem:")[2].split(None, 1)[0]) * 1024
        return max(0, sum(held.values()) - mapped)
    except (OSError, IndexError, ValueError):
        return 0


def children(pid: int) -> set[int]:
    """Processes that one has started, or has been left with; none where the kernel does not say."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.update(map(int, (task / "children").read_bytes().split()))
    return found


def processor_seconds(pid: int) -> float:
    """Processor time that one process has taken so far."""
    try:
        if not _LINUX:
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, psutil.Error):
        return 0.0


def family(pid: int) -> list[int]:
    """A process, all that it started, and those in turn."""
    if not _LINUX:
        try:
            return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
        except psutil.Error:
            return [pid]
    found, new = [pid], children(pid)
    while new:
        found += new
        new = {child for parent in new for child in children(parent)} - set(found)
    return found


def adopt_orphans() -> None:
    """Let processes whose parents died become children of this one, so that it can end them."""
    if _LINUX:
        be_subreaper = 36
        ctypes.CDLL(None).prctl(be_subreaper, 1, 0, 0, 0)


def end_others(known: set[int]) -> None:
    """End all children of this process that are not `known`: what a reading left running."""
    while others := children(os.getpid()) - known:
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)  # its own children come to us, for the next turn
