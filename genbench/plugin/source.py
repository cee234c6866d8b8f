"""Where plugins come from: installed packages that name an entry point, single files, genbench itself."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import Final, Literal

from genbench.plugin.hookspecs import ENTRY_POINT_GROUP

__all__ = [
    "BUILTIN",
    "BUILT_IN",
    "Source",
    "module_file",
    "package_hash",
    "package_sources",
    "plugin_homes",
]

BUILTIN = "genbench"
"""Name of the plugin that carries everything built in."""
BUILT_IN: Final = "built-in"
"""Kind of its source."""
SourceKind = Literal["built-in", "package", "file"]


@dataclass(frozen=True)
class Source:
    """Where a plugin's code comes from, in words that a worker process can load it from again."""

    kind: SourceKind
    plugin: str
    """Entry-point name, "genbench" for the built-ins, or the file's path."""
    distribution: str = ""
    version: str = ""
    module: str = ""
    """Module of the entry point, or absolute path of the file."""

    def __str__(self) -> str:
        if self.kind == "package":
            return f"{self.distribution} {self.version}"
        return "built-in" if self.kind == "built-in" else self.plugin


def package_sources() -> list[Source]:
    """Every installed plugin, in the order of their names; none is imported."""
    found = [
        Source("package", point.name, dist.name, dist.version, point.value) for dist, point in _entry_points()
    ]
    return sorted(found, key=lambda one: (one.distribution, one.plugin))


def _entry_points() -> Iterable[tuple[Distribution, EntryPoint]]:
    seen = set()
    for dist in distributions():
        for point in dist.entry_points:
            # An editable install beside a build folder lists the same distribution twice.
            if point.group == ENTRY_POINT_GROUP and (dist.name, point.name) not in seen:
                seen.add((dist.name, point.name))
                yield dist, point


def plugin_homes() -> set[Path]:
    """Packages of plugins, wherever they lie; found without importing any of them."""
    homes: set[Path] = set()
    for source in package_sources():
        with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
            spec = importlib.util.find_spec(source.module.partition(":")[0].partition(".")[0])
            places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
            homes.update(Path(place).resolve() for place in places if place)
    return homes


def module_file(module: str) -> Path | None:
    """The file of a module, found without importing it or a package that it is in."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    place = Path(spec.origin)
    for name in rest:
        folder = place.parent
        place = folder / f"{name}.py"
        if not place.is_file():
            place = folder / name / "__init__.py"
    return place.resolve() if place.is_file() else None


def package_hash(home: Path) -> str:
    """sha256 of the Python files of a package, or of a single file.

    Parameters
    ----------
    home : its folder or its __init__.py, which stands for all of them unless it is alone.
    """
    if home.name == "__init__.py" and len(list(home.parent.rglob("*.py"))) > 1:
        home = home.parent
    files = sorted(home.rglob("*.py")) if home.is_dir() else [home]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(home)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
