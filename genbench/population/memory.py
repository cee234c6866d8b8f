"""Memory of a process that makes and drops the same large tensors over and over."""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt` parameters, from malloc.h."""


def keep_freed_memory(at_most: int = 2**30) -> bool:
    """Let this process reuse what it frees instead of giving it back; False where the C library is another.

    glibc returns blocks of some megabytes at once, and the kernel zeroes them anew, page by page, for the
    next step of training: a fifth of its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, at_most)) and bool(mallopt(_TRIM_THRESHOLD, at_most))
