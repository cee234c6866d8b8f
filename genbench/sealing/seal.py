"""How a process is sealed: it gives up files, system calls, its environment and rights of root, for good."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from genbench.sealing import landlock, seccomp

__all__ = ["Seal", "close_further", "missing", "unsealed_signals"]


def missing() -> str:
    """What this machine lacks for a sandbox, as the end of a sentence; empty if nothing."""
    if not sys.platform.startswith("linux"):
        return "only Linux has Landlock and seccomp"
    if not seccomp.available():
        return "this kernel has no seccomp for this processor"
    if not landlock.abi():
        return "this kernel has no Landlock (Linux 5.13 or later has it, unless `lsm=` leaves it out)"
    return ""


def unsealed_signals() -> bool:
    """Whether code that a plugin runs while it is imported could send signals to other processes."""
    return landlock.abi() < 6


class Seal:
    """What processes may still see, for the kernel to hold them to.

    Parameters
    ----------
    read : files, and folders with all that is in them.
    private : the folder that sealed processes may write to.
    devices : what they may use beside the device that swallows everything.
    listed : folders of which only names may be read.
    """

    def __init__(
        self, read: Sequence[Path], private: Path, devices: Sequence[Path] = (), listed: Sequence[Path] = ()
    ) -> None:
        self.private = private
        for strength in get_args(seccomp.Strength):
            seccomp.prepared(strength)  # here, for all that will be forked
        self._ruleset = landlock.Ruleset(read, [private], [Path(os.devnull), *devices], listed)

    @property
    def descriptor(self) -> int:
        """To be kept open until the process is sealed."""
        return self._ruleset.descriptor

    def close(self, strength: seccomp.Strength) -> None:
        """Seal this process, and all that will come of it."""
        _leave_surroundings(self.private)
        seccomp.no_new_privileges()
        self._ruleset.take_on()
        self._ruleset.close()
        _drop_capabilities()
        seccomp.forgo(strength)

    def forget(self) -> None:
        """Release it; sealed processes stay so."""
        self._ruleset.close()


def close_further(private: Path) -> None:
    """Seal a reading that was forked off a plugin's process, which has given up files already."""
    _leave_surroundings(private)
    seccomp.forgo("reading")


def _leave_surroundings(private: Path) -> None:
    os.environ.clear()
    os.chdir(private)
    tempfile.tempdir = str(private)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWord(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


_CapabilityWords = _CapabilityWord * 2
_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPABILITIES_VERSION = 0x2008_0522
_OVERRIDE, _READ_SEARCH = 1 << 1, 1 << 2
"""To open files of other users, as far as Landlock lets it: packages need not belong to root."""


def _drop_capabilities() -> None:
    if os.geteuid():
        return
    header, words = _CapabilityHeader(_CAPABILITIES_VERSION, 0), _CapabilityWords()
    if _LIBC.capget(ctypes.byref(header), ctypes.byref(words)):
        raise OSError(ctypes.get_errno(), "the rights of root cannot be looked at")
    kept = words[0].permitted & (_OVERRIDE | _READ_SEARCH)
    words[0] = _CapabilityWord(kept, kept, 0)
    words[1] = _CapabilityWord(0, 0, 0)
    if _LIBC.capset(ctypes.byref(header), ctypes.byref(words)):
        raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")
