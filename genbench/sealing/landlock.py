"""Landlock, by which a process of Linux gives up files, without privileges and for good.

A ruleset names folders and files with what may be done there; a process that takes it on, and all that come
of it, can do nothing else. Own ctypes: the published binding is a development version that opens every path
anew for each process, where here one ruleset serves all readings of a worker.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["Ruleset", "abi"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_ASK_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ALL_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version of the interface to everything that it can forbid."""
_NETWORK = 0b11
"""To bind and to connect TCP."""
_SCOPES = 0b11
"""To reach abstract sockets of others, and to send them signals."""

_OF_FILES = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL
_READ = _READ_FILE | _READ_DIR
_CHANGE = _READ | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG
_DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def abi() -> int:
    """Version of the interface that this kernel offers; 0 if there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError:
        return 0


class Ruleset:
    """What a process may still do with files once it has taken this on.

    Parameters
    ----------
    read : files, and folders with all that is in them.
    change : folders in which files and folders may also be made, written and removed.
    devices : files of devices, or folders of them, which may be used as their drivers want.
    listed : folders of which only the names of what is in them may be read, however deep.
    """

    def __init__(
        self,
        read: Iterable[Path],
        change: Iterable[Path],
        devices: Iterable[Path] = (),
        listed: Iterable[Path] = (),
    ) -> None:
        version = abi()
        self._handled = _ALL_FILES[min(version, max(_ALL_FILES))]
        attributes = _RulesetAttributes(self._handled, _NETWORK, _SCOPES)
        size = 8 if version < 4 else 16 if version < 6 else 24
        created = _call(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
        self.descriptor = created
        os.set_inheritable(self.descriptor, False)
        for paths, rights in ((read, _READ), (change, _CHANGE), (devices, _DEVICE), (listed, _READ_DIR)):
            for path in paths:
                self._allow(path, rights)

    def _allow(self, path: Path, rights: int) -> None:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # what is not there, or not ours to see, needs no rule
        try:
            if not stat.S_ISDIR(os.fstat(opened).st_mode):
                rights &= _OF_FILES
            rule = _PathBeneath(rights & self._handled, opened)
            _call(
                _ADD,
                ctypes.c_int(self.descriptor),
                ctypes.c_int(_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        finally:
            os.close(opened)

    def take_on(self) -> None:
        """Restrict this process for good; it must have given up new privileges before."""
        _call(_RESTRICT, ctypes.c_int(self.descriptor), ctypes.c_uint32(0))

    def close(self) -> None:
        """Forget it; processes that have taken it on stay restricted."""
        os.close(self.descriptor)
