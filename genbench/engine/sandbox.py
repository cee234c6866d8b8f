"""The sandbox of readings: a measure sees its network, its training data and its own code, and nothing else.

On Linux the kernel holds it, whoever genbench runs as: Landlock takes the files away, seccomp the network,
other processes and memory that nobody counts. A process is sealed before the first line of a plugin runs in
it, for good, and so is all that comes of it. What a sealed process may see of a run lies in two folders of a
worker: `given`, where the host puts its network and shared parts, and a private one, the only place it can
write to.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import site
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

from genbench.engine import landlock, seccomp
from genbench.engine.compute import Compute
from genbench.engine.guarded import Sealing
from genbench.plugin.hookspecs import ENTRY_POINT_GROUP
from genbench.zoo.weights import is_there, remember_places, weight_folders

__all__ = [
    "NOT_SEALED",
    "SEALED",
    "Seal",
    "close_reading_of_plugin",
    "emptied",
    "missing",
    "size_of",
    "unsealed_signals",
]

SEALED = "landlock+seccomp"
NOT_SEALED = "none"
"""What readings say of the sandbox that they were taken in."""

_PACKS = "packs"
"""Folder beside a suite with evidence, which no reading may see."""


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
    """What processes of one worker may still see, for the kernel to hold them to.

    Parameters
    ----------
    given : the worker's folder with the network and its shared parts.
    private : the folder that sealed processes may write to.
    store : where results are kept, to be hidden wherever it lies.
    code : files of a plugin that lie on no search path.
    """

    def __init__(
        self, given: Path, private: Path, store: Path, compute: Compute, code: Sequence[Path] = ()
    ) -> None:
        self.private = private
        for strength in get_args(seccomp.Strength):
            seccomp.prepared(strength)  # here, for all that will be forked
        devices = _devices(compute)
        around = visible(store.resolve())
        read = [*around.read, *code, given]
        self._ruleset = landlock.Ruleset(read, [private], [Path(os.devnull), *devices], around.listed)

    @property
    def descriptor(self) -> int:
        """To be kept open until the process is sealed."""
        return self._ruleset.descriptor

    @property
    def child(self) -> Sealing:
        """For a child that takes readings."""
        return Sealing(self.close_reading, self.private, self.descriptor)

    def close_plugin(self) -> None:
        """Seal the process that a plugin is imported in, which may still fork readings and end them."""
        remember_places()
        self._close("plugin")

    def close_reading(self) -> None:
        """Seal the process of a reading."""
        remember_places()
        self._close("reading")

    def _close(self, strength: seccomp.Strength) -> None:
        _leave_surroundings(self.private)
        seccomp.no_new_privileges()
        self._ruleset.take_on()
        self._ruleset.close()
        _drop_capabilities()
        seccomp.forgo(strength)

    def forget(self) -> None:
        """Release it; sealed processes stay so."""
        self._ruleset.close()


def close_reading_of_plugin(private: Path) -> None:
    """Seal a reading that was forked off a plugin's process, which has given up files already."""
    _leave_surroundings(private)
    seccomp.forgo("reading")


def _leave_surroundings(private: Path) -> None:
    os.environ.clear()
    os.chdir(private)
    tempfile.tempdir = str(private)


# -- what is left to see -----------------------------------------------------------------------------------

_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache",
    "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/dev/zero", "/dev/random", "/dev/urandom",
)  # fmt: skip
_OF_CODE = (".py", ".so", ".dist-info", ".egg-info")
_ACCELERATORS = ("nvidia", "dri", "kfd")


@dataclass(frozen=True)
class Visible:
    """What there is to see for any reading, whatever its network."""

    read: list[Path]
    """Files, and folders with all that is in them."""
    listed: list[Path]
    """Folders of which something is hidden: imports need the names of all that is in them."""


@cache
def visible(hidden: Path) -> Visible:
    """Files and folders of the system, of Python and of installed packages; evidence is left out."""
    plugins = _plugin_homes()
    kept = {hidden, *_pack_folders(plugins), *_held_out()}
    found = Visible([Path(name) for name in _SYSTEM], [])
    prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    libraries = [prefix / name for prefix in prefixes for name in ("lib", "lib64")]
    libraries += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    libraries += [Path(path) for path in (*site.getsitepackages(), *_linker_folders())]
    whole = [path for path in libraries if len(path.parts) > 2]
    on_path = [Path(entry).resolve() for entry in sys.path if entry]
    for entry in on_path:
        whole += [entry] if _within(entry, whole) else _code_in(entry)
    whole += plugins
    resolved = {path.resolve() for path in whole if is_there(path)}
    outermost = [path for path in resolved if not _within(path, resolved - {path})]
    for path in sorted(outermost):
        _add_without(path, kept, found)
    found.read.extend(weight_folders())
    return found


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path == folder or folder in path.parents for folder in folders)


def _add_without(path: Path, hidden: set[Path], found: Visible) -> None:
    """Add `path`, or all of it but what is hidden: rules of Landlock can only allow."""
    if path in hidden:
        return
    if not any(path in other.parents for other in hidden):
        found.read.append(path)
        return
    found.listed.append(path)
    for entry in sorted(path.iterdir()):
        _add_without(entry, hidden, found)


def _code_in(folder: Path) -> list[Path]:
    """Modules and packages of a folder on the search path that may hold anything else beside them."""
    if not is_there(folder):
        return []
    if not folder.is_dir():
        return [folder]
    with contextlib.suppress(PermissionError):
        return [
            entry for entry in folder.iterdir() if entry.suffix in _OF_CODE or is_there(entry / "__init__.py")
        ]
    return []


def _plugin_homes() -> set[Path]:
    """Packages of genbench and of plugins, wherever they lie; found without importing any of them."""
    homes = {Path(__file__).resolve().parent.parent}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
            spec = importlib.util.find_spec(point.module.partition(".")[0])
            places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
            homes.update(Path(place).resolve() for place in places if place)
    return homes


def _pack_folders(homes: Iterable[Path]) -> set[Path]:
    """Evidence that ships in packages."""
    return {
        Path(folder) / _PACKS for home in homes for folder, inside, _ in os.walk(home) if _PACKS in inside
    }


def _held_out() -> list[Path]:
    """Data sets that ship with packages: a network's held-out images are among them."""
    data = Path(__file__).resolve().parent.parent / "data"
    found = list(data.glob("*/assets"))
    places: Sequence[str] = []
    with contextlib.suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec("sklearn")
        places = [] if spec is None else spec.submodule_search_locations or []
    return [*found, *(Path(place).resolve() / "datasets" / "data" for place in places)]


def _linker_folders() -> list[str]:
    return [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name]


def _devices(compute: Compute) -> list[Path]:
    """Of a GPU, what its driver opens."""
    if compute.device == "cpu":
        return []
    drivers = [entry for entry in Path("/dev").iterdir() if entry.name.startswith(_ACCELERATORS)]
    return [*drivers, Path("/proc/driver/nvidia"), Path("/dev/shm")]


# -- the private folder --------------------------------------------------------------------------------------


def emptied(folder: Path) -> bool:
    """Whether all that a sealed process left in its private folder could be removed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink()
    except (OSError, RecursionError):
        return False
    return True


def size_of(folder: Path) -> int:
    """Bytes of all files in a private folder, as far as they take room."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                about = (Path(place) / name).lstat()
                total += about.st_blocks * 512 if stat.S_ISREG(about.st_mode) else 0
    return total


# -- rights of root ------------------------------------------------------------------------------------------


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
