"""The largest resident memory of this process since it was last asked to forget it."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["forget_peak", "peak_memory"]


def forget_peak() -> None:
    """Begin anew, where the kernel can forget."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """In bytes; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    _, found, rest = status.partition("\nVmHWM:")
    return int(rest.split(None, 1)[0]) * 1024 if found else 0
