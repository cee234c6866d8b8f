"""Tells what a person can fix from what went wrong, where the exception still is one."""

from __future__ import annotations

import errno

from genbench.engine.cells import Cause, Fixable
from genbench.errors import UserError, one_line

__all__ = ["fixable"]

_NO_ROOM = ("No space left", "Disk quota")
"""What libraries say that do not pass on the system's number for it."""


def fixable(problem: BaseException) -> Fixable | None:
    """What a person can do about `problem`; None if nothing is known."""
    if isinstance(problem, UserError):
        return Fixable(Cause.USER, one_line(str(problem), 2000))
    full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or any(words in str(problem) for words in _NO_ROOM):
        return Fixable(Cause.DISK, one_line(str(problem)))
    return None
