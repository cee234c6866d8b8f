"""What a store holds, and what of it can go."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from genbench.engine.readings import READING
from genbench.engine.store import Store, StoredCell
from genbench.errors import UserError
from genbench.packs.pack import UNPACKED
from genbench.plugin.registry import BUILT_IN, Registry, load_registry
from genbench.runs.plan import measure_fingerprint
from genbench.subject.version import SUBJECT_VERSION

__all__ = ["SHELVES", "Shelf", "empty", "look_through"]

SHELVES = {
    "work": "networks, truths and cubes; dear to make again",
    "readings": "of the measures as they are now",
    "old readings": "of earlier versions of measures or of genbench; no run asks for them",
    "other code": "readings of files, and of plugins that are not installed or have changed",
    "copies": "of networks in packs; copied again in no time",
    "drawings": "figures of reports; drawn again in a second each",
    "damaged": "cells and tables that cannot be read any more",
}
"""What there may be, by name."""
_KEPT = ("work", "readings")
"""Never removed."""
_SURE = ("old readings", "drawings", "damaged")
"""Removed unless something else is asked for."""


@dataclass
class Shelf:
    """Things of one sort."""

    name: str
    keys: list[str] = field(default_factory=list)
    """Of cells."""
    files: list[Path] = field(default_factory=list)
    bytes: int = 0

    @property
    def about(self) -> str:
        """What is on it."""
        return SHELVES[self.name]

    @property
    def can_go(self) -> str:
        """ "no", "yes", or "if asked": removed only by name."""
        return "no" if self.name in _KEPT else "yes" if self.name in _SURE else "if asked"

    @property
    def count(self) -> int:
        """Cells, or files."""
        return len(self.keys) + len(self.files)


def look_through(store: Store) -> dict[str, Shelf]:
    """Everything in the store, by sort; nothing is changed."""
    shelves = {name: Shelf(name) for name in SHELVES}
    registry, known = load_registry(), dict[str, str]()
    for key in store.finished():
        shelf = shelves[_sort(store.manifest(key), registry, known)]
        shelf.keys.append(key)
        shelf.bytes += _size(store.folder(key).iterdir())
    for name, files in (
        ("drawings", store.root.glob("figures/*.svg")),
        ("damaged", store.root.glob("readings.damaged-*.sqlite")),
    ):
        shelves[name].files = sorted(files)
        shelves[name].bytes += _size(shelves[name].files)
    return shelves


def _sort(cell: StoredCell | None, registry: Registry, known: dict[str, str]) -> str:
    if cell is None:
        return "damaged"
    if cell["kind"] == UNPACKED.name:
        return "copies"
    if cell["kind"] != READING.name:
        return "work"
    inputs = cell["inputs"]
    entry = registry.measures.get(str(inputs["measure"]))
    if inputs["code"] == BUILT_IN:
        current = entry is not None and inputs["measure_version"] == entry.item.version
        return "readings" if current and inputs["subject_version"] == SUBJECT_VERSION else "old readings"
    if entry is None or entry.source.kind == BUILT_IN:
        return "other code"
    if entry.item.name not in known:
        known[entry.item.name] = measure_fingerprint(entry)
    return "readings" if inputs["code"] == known[entry.item.name] else "other code"


def _size(files: Iterator[Path] | Collection[Path]) -> int:
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def empty(store: Store, shelves: dict[str, Shelf], names: Collection[str] = ()) -> int:
    """Remove what can go, or the shelves that are named; gives the bytes that are free now.

    A cell that another run is working on stays.
    """
    for name in names:
        if name not in SHELVES:
            raise UserError(f"--what {name!r}: there are {', '.join(n for n in SHELVES if n not in _KEPT)}")
        if name in _KEPT:
            raise UserError(f"--what {name!r}: {SHELVES[name]}; remove the whole store to be rid of them")
    freed = 0
    gone: list[str] = []
    for shelf in shelves.values():
        if shelf.name not in (names or _SURE):
            continue
        for key in shelf.keys:
            if store.try_lock(key):
                freed += _size(store.folder(key).iterdir())
                store.discard(key)
                store.unlock(key)
                gone.append(key)
        for file in shelf.files:
            freed += _size([file])
            file.unlink(missing_ok=True)
    _forget(store.root / "readings.sqlite", gone)
    return freed


def _forget(table: Path, keys: list[str]) -> None:
    """Take rows out of the index of readings."""
    if not keys or not table.is_file():
        return
    with contextlib.closing(sqlite3.connect(table, timeout=30)) as connection, connection:
        connection.executemany("DELETE FROM readings WHERE key = ?", [(key,) for key in keys])
