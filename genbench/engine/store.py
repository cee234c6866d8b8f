"""The store: one folder per finished cell, written whole or not at all, checked whenever it is read.

    STORE/
      genbench-store.json            format version
      cells/ab/abcdef.../            one finished cell
        manifest.json                key, kind, inputs, result, sha256 of every other file
        *.safetensors, *.json        its files
        cost.json                    seconds, memory, package versions: not part of the result
      readings.sqlite                index of the readings for queries, rebuilt from cells/ at need
      staging/RUN/                   cells in flight; removed when their run is gone
      locks                          byte-range locks, one byte per cell

The folders are the truth. Everything in them but `cost.json` is a function of the cell's key.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

import msgspec

from genbench.engine.cells import Cell, Cost, Outcome, Result, Status
from genbench.errors import StoreError
from genbench.keys import Inputs, canonical_json, file_hash, text_hash

__all__ = [
    "COST",
    "MANIFEST",
    "Damage",
    "Origin",
    "Store",
    "StoredCell",
    "disk_full",
    "read_manifest",
    "store_around",
    "stored_folder",
    "write_atomically",
    "write_sealed",
]

FORMAT = 1
_MARKER = "genbench-store.json"
MANIFEST = "manifest.json"
COST = "cost.json"


class StoredCell(TypedDict):
    """What `manifest.json` says of a finished cell."""

    key: str
    kind: str
    """Name of its step."""
    inputs: Inputs
    about: Mapping[str, str | bool]
    parents: Mapping[str, str]
    reads: NotRequired[Mapping[str, str]]
    status: str
    reason: str
    result: Result
    files: dict[str, str]
    """Name to sha256."""


class Origin(TypedDict):
    """What may explain a difference between two machines."""

    packages: dict[str, str]
    """Package to version."""
    python: str
    platform: str
    machine: str
    time: NotRequired[str]
    """Of a run."""
    device: NotRequired[str]
    """Of a pack; without it, one thread of the CPU."""
    threads: NotRequired[int]


@dataclass(frozen=True)
class Damage:
    """A stored file that is not what was written."""

    key: str
    file: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


class Store:
    """Results of cells in a folder that several runs may share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cells = root / "cells"
        self._run = root / "staging" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._run_lock: int | None = None
        with _explained(root, "created"):
            self._require_store()
            self._cells.mkdir(exist_ok=True)
            self._run_lock = self._enter()
            # Opened once: closing any descriptor of this file would drop all its locks.
            self._locks = os.open(root / "locks", os.O_RDWR | os.O_CREAT, 0o666)
        self._remove_dead_runs()

    def _require_store(self) -> None:
        marker = self.root / _MARKER
        if marker.exists():
            try:
                found = json.loads(marker.read_text()).get("format")
            except (ValueError, AttributeError):
                found = None
            if found != FORMAT:
                raise StoreError(
                    f"{marker} is not that of a store of format {FORMAT}; choose another folder with --store"
                )
            return
        # Another run may be creating the store at this moment: its half-made marker is no foreign file.
        if self.root.is_dir() and not all(_MARKER in entry.name for entry in self.root.iterdir()):
            if marker.exists():
                return  # it has just been created
            raise StoreError(
                f"{self.root} is neither a genbench store nor empty; choose a new folder with --store"
            )
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(f"{self.root} is a file, not a folder; choose a folder with --store")
        self.root.mkdir(parents=True, exist_ok=True)
        write_atomically(marker, canonical_json({"format": FORMAT}) + "\n")

    def _enter(self) -> int:
        """Make this run's staging folder; it appears under its name only once it is locked."""
        unborn = self._run.with_name(f".{self._run.name}")
        unborn.mkdir(parents=True)
        lock = _lock_file(unborn / ".lock")
        unborn.rename(self._run)
        return lock

    def _remove_dead_runs(self) -> None:
        for run in self._run.parent.iterdir():
            if run == self._run:
                continue
            try:
                # Without a lock: it is being born, or was removed while a last worker of its run wrote to it.
                bare = run.name.startswith(".") or not (run / ".lock").exists()
                if bare and time.time() - run.stat().st_mtime < _BIRTH_SECONDS:
                    continue
                lock = _lock_file(run / ".lock", create=bare)
            except OSError:
                continue  # its run is alive, or another run is removing it
            for _ in range(_REMOVALS):
                _remove(run)
                if not run.exists():
                    break
                time.sleep(_DYING_SECONDS)
            os.close(lock)

    def close(self) -> None:
        """Leave the store: drop the run's staging folder and locks."""
        _remove(self._run)
        for descriptor in (self._run_lock, self._locks):
            if descriptor is not None:
                os.close(descriptor)
        self._run_lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------

    def folder(self, key: str) -> Path:
        """Where the finished cell `key` lies or would lie."""
        return stored_folder(self.root, key)

    def finished(self) -> Iterator[str]:
        """Keys of all finished cells, in order."""
        for shelf in sorted(self._cells.iterdir()):
            yield from sorted(folder.name for folder in shelf.iterdir())

    def read(self, key: str) -> Outcome | Damage | None:
        """The stored outcome, None if there is none, or what is wrong with it. Every byte is checked."""
        folder = self.folder(key)
        if not folder.is_dir():
            return None
        manifest = _read_sealed(folder / MANIFEST)
        cost = _read_sealed(folder / COST)
        for name, part in ((MANIFEST, manifest), (COST, cost)):
            if isinstance(part, str):
                return Damage(key, folder / name, part)
        assert isinstance(manifest, dict)
        assert isinstance(cost, dict)
        if manifest["key"] != key:
            return Damage(key, folder / MANIFEST, f"belongs to another cell, {manifest['key']}")
        files: dict[str, str] = manifest["files"]
        for name, expected in files.items():
            try:
                found = file_hash(folder / name)
            except OSError as problem:
                return Damage(key, folder / name, problem.strerror or "cannot be read")
            if found != expected:
                return Damage(key, folder / name, "checksum differs from the one it was written with")
        extra = {p.name for p in folder.iterdir()} - files.keys() - {MANIFEST, COST}
        if extra:
            return Damage(key, folder / min(extra), "was not written by genbench")
        return Outcome(
            status=Status(manifest["status"]),
            reason=manifest["reason"],
            result=manifest["result"],
            cost=Cost(**cost["cost"]),
            computed=False,
        )

    def manifest(self, key: str) -> StoredCell | None:
        """Kind, inputs and result of a finished cell, or None if there is no sound manifest."""
        sealed = _read_sealed(self.folder(key) / MANIFEST)
        return cast(StoredCell, sealed) if isinstance(sealed, dict) else None

    def discard(self, key: str) -> None:
        """Forget a finished cell, so that it is made again."""
        with _explained(self.root, "changed"):
            doomed = self._run / f"discarded-{uuid.uuid4().hex[:8]}"
            try:
                self.folder(key).rename(doomed)  # whole or not at all, like its coming
            except FileNotFoundError:
                return
            shutil.rmtree(doomed, ignore_errors=True)

    # -- writing -------------------------------------------------------------------------------------

    @property
    def scratch(self) -> Path:
        """A folder for temporary files that goes when this run does, however it ends."""
        folder = self._run / "scratch"
        with _explained(self.root, "written"):
            folder.mkdir(exist_ok=True)
        return folder

    def staging(self, key: str) -> Path:
        """Where the files of a cell in flight lie or would lie."""
        return self._run / key

    def stage(self, key: str) -> Path:
        """An empty folder for the files of a cell in flight."""
        folder = self.staging(key)
        with _explained(self.root, "written"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        return folder

    def unstage(self, key: str) -> None:
        """Drop what a cell in flight left behind."""
        shutil.rmtree(self._run / key, ignore_errors=True)

    def commit(self, cell: Cell, outcome: Outcome, provenance: Origin, *, surely: bool = True) -> None:
        """Seal the staged folder of `cell` and put it in place by one rename.

        Parameters
        ----------
        surely : wait until the disk has it. Without, a loss of power within seconds may take the cell back or
            leave it damaged, which is found when it is read and costs one small cell; a killed process loses
            nothing either way.
        """
        staged = self.staging(cell.key)
        with _explained(self.root, "written"):
            staged.mkdir(exist_ok=True)
            files = {path.name: file_hash(path) for path in sorted(staged.iterdir())}
            if surely:
                for name in files:
                    _fsync(staged / name)
            manifest: StoredCell = {
                "key": cell.key,
                "kind": cell.step.name,
                "inputs": dict(cell.inputs),
                "about": dict(cell.about),
                "parents": dict(cell.parents),
                "status": str(outcome.status),
                "reason": outcome.reason,
                "result": dict(outcome.result),
                "files": files,
            }
            if cell.reads:
                manifest["reads"] = dict(cell.reads)
            write_sealed(staged / MANIFEST, manifest, surely)
            cost = {"cost": asdict(outcome.cost), "provenance": dict(provenance)}
            write_sealed(staged / COST, cost, surely)
            if surely:
                _fsync(staged)
            target = self.folder(cell.key)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                staged.rename(target)
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # Another run finished the same cell first; both hold the same result.
                shutil.rmtree(staged, ignore_errors=True)
                return
            if surely:
                _fsync(target.parent)

    # -- sharing -------------------------------------------------------------------------------------

    def try_lock(self, key: str) -> bool:
        """Claim a cell for this run; False if another live run holds it. A dead run holds nothing."""
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(key), os.SEEK_SET)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def unlock(self, key: str) -> None:
        """Give a claimed cell back."""
        fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, _offset(key), os.SEEK_SET)


def _remove(folder: Path) -> None:
    """Remove a folder, also where a reading has left some that nobody may look into."""

    def retry(function: Callable[[str], object], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            for locked in (Path(path).parent, Path(path)):
                locked.chmod(0o700)
            function(path) if function is not os.scandir else shutil.rmtree(path, ignore_errors=True)

    shutil.rmtree(folder, onerror=retry)


_BIRTH_SECONDS = 60.0
"""Between making a run's folder and locking it; a run that takes longer was killed there."""
_REMOVALS, _DYING_SECONDS = 10, 0.05
"""Attempts to remove the folder of a killed run, and time between them for its workers to die."""


def stored_folder(root: Path, key: str) -> Path:
    """Where a store at `root` keeps the finished cell `key`; looks at nothing."""
    return root / "cells" / key[:2] / key


def store_around(scratch: Path) -> Path:
    """The store in which a worker's folder below `Store.scratch` lies, as far up as there are folders."""
    return (scratch, *scratch.parents)[: _UP_TO_STORE + 1][-1]


_UP_TO_STORE = 4
"""From a worker's folder: scratch, the run's folder, all staging folders, the store."""


def _offset(key: str) -> int:
    # A byte of the lock file per cell, far beyond its end: locks need no bytes to exist. 2^62 places
    # make it all but impossible that two cells of a store share one, and sharing would only delay.
    return int(key[:16], 16) >> 2


def _lock_file(path: Path, create: bool = True) -> int:
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_manifest(folder: Path) -> StoredCell:
    """The manifest of a finished cell's folder, for steps that read their parents' results."""
    sealed = _read_sealed(folder / MANIFEST)
    if isinstance(sealed, str):
        raise StoreError(f"{folder / MANIFEST}: {sealed}; run the same command again to make it anew")
    return cast(StoredCell, sealed)


def write_sealed(path: Path, body: object, surely: bool = True) -> None:
    """Write JSON with the checksum of its own body as the first line."""
    # With an indent json encodes in Python, ten times as slowly.
    compact = json.dumps(body, sort_keys=True, allow_nan=False, ensure_ascii=False)
    text = msgspec.json.format(compact, indent=1)
    path.write_text(text_hash(text) + "\n" + text + "\n", encoding="utf-8")
    if surely:
        _fsync(path)


def _read_sealed(path: Path) -> dict[str, Any] | str:
    """The body, or what is wrong with the file."""
    try:
        seal, newline, text = path.read_bytes().decode().partition("\n")
    except OSError as problem:
        return problem.strerror or "cannot be read"
    except UnicodeDecodeError:
        return "is not text any more"
    if not newline or not text.endswith("\n") or text_hash(text[:-1]) != seal:
        return "checksum differs from the one it was written with"
    body: dict[str, Any] = json.loads(text)
    return body


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        _fsync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_full(where: Path) -> StoreError:
    """What to say when the disk of a store is full."""
    return StoreError(
        f"the disk of {where} is full; free some space or choose another disk with --store, "
        "then run the same command again: finished cells are kept"
    )


@contextmanager
def _explained(root: Path, done: str) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence that says what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(root) from problem
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreError(
                f"the store {root} cannot be {done}: no permission for {problem.filename}; "
                "choose a folder you may write to with --store"
            ) from problem
        raise StoreError(f"the store {root} cannot be {done}: {problem}; check --store") from problem
