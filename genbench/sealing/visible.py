"""What any sealed process may see: the system's libraries, Python and installed packages, but no evidence."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Visible", "is_there", "visible"]

_GENBENCH = Path(__file__).resolve().parent.parent
_PACKS = "packs"
"""Folder beside a suite with evidence, which no reading may see."""
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache",
    "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/dev/zero", "/dev/random", "/dev/urandom",
)  # fmt: skip
_OF_CODE = (".py", ".so", ".dist-info", ".egg-info")


@dataclass(frozen=True)
class Visible:
    """What there is to see for any reading, whatever its network."""

    read: list[Path]
    """Files, and folders with all that is in them."""
    listed: list[Path]
    """Folders of which something is hidden: imports need the names of all that is in them."""


@cache
def visible(hidden: Path, homes: frozenset[Path], more: tuple[Path, ...] = ()) -> Visible:
    """Files and folders of the system, of Python and of installed packages; evidence is left out.

    Parameters
    ----------
    hidden : a folder to be left out.
    homes : packages of plugins, which may lie anywhere.
    more : other folders to be seen.
    """
    plugins = homes | {_GENBENCH}
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
    found.read.extend(more)
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


def _pack_folders(homes: Iterable[Path]) -> set[Path]:
    """Evidence that ships in packages."""
    return {
        Path(folder) / _PACKS for home in homes for folder, inside, _ in os.walk(home) if _PACKS in inside
    }


def _held_out() -> list[Path]:
    """Data sets that ship with packages: a network's held-out images are among them."""
    found = list((_GENBENCH / "data").glob("*/assets"))
    places: Sequence[str] = []
    with contextlib.suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec("sklearn")
        places = [] if spec is None else spec.submodule_search_locations or []
    return [*found, *(Path(place).resolve() / "datasets" / "data" for place in places)]


def _linker_folders() -> list[str]:
    return [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name]


def is_there(path: Path) -> bool:
    """Whether this user can see that it exists."""
    try:
        return path.exists()
    except PermissionError:
        return False
