"""A worker on a node: fetches what cells read, computes them under the guard there, sends back their files.

One is an actor of the cluster. It holds a `LocalExecutor` with a single worker process, so that a cell is
computed on a node exactly as it is computed by `--executor local`.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from genbench._version import __version__
from genbench.cluster.library import import_ray
from genbench.cluster.node_files import NodeFiles, node_root
from genbench.cluster.parcels import CellAnswer, FileParcel, FolderParcel, NodeFacts, TripParcel, pack_file
from genbench.engine.cells import KEPT, Assignment, Cause, Cell, Fixable, Limits, Outcome, Status
from genbench.engine.executors import Ended, Trip
from genbench.engine.fixable import fixable
from genbench.engine.local import LocalExecutor
from genbench.engine.readings import READING
from genbench.engine.store import MANIFEST, Store
from genbench.errors import described
from genbench.keys import file_hash
from genbench.plugin.offers import ExecutorRequest
from genbench.sealing.seal import missing

__all__ = ["NodeWorker", "packages_here"]

_TOGETHER_SECONDS = 0.1
"""Answers within this time travel together: a message costs more than a small reading."""
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")
"""Beside genbench: what bits depend on."""


def packages_here() -> dict[str, str]:
    """Versions of what bits depend on."""
    found = {"genbench": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


class NodeWorker:
    """Computes one trip at a time."""

    def __init__(self, limits: Limits) -> None:
        self._ray = import_ray()
        self._name = f"{socket.gethostname()}/{self._ray.get_runtime_context().get_node_id()[:6]}"
        self._root = node_root()
        # Its staging folder goes when this process does; folders of killed workers go with the next start.
        self._store = Store(self._root / "work")
        self._files = NodeFiles(self._root / "files")
        self._folders: dict[str, Path] = {}
        self._executor = LocalExecutor(ExecutorRequest(1, limits, self._store.scratch.resolve()))

    def facts(self) -> NodeFacts:
        """What the driver asks before it sends any work."""
        return NodeFacts(self._name, packages_here(), missing())

    def compute(self, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        """Compute the cells; answers as they come, some together."""
        left = {cell.key: cell for cell in trip.cells}
        try:
            assigned = tuple(self._assigned(cell, trip) for cell in trip.cells)
            self._executor.submit(self._executor.free()[0], Trip(assigned))
        except OSError as problem:
            yield [CellAnswer(key, self._failed(problem)) for key in left]
            return
        ended: list[Ended] = []
        spoke = time.monotonic()
        while left:
            said = self._executor.wait(_TOGETHER_SECONDS if ended else 10.0)
            ended += [one for one in said if isinstance(one, Ended)]
            for one in ended:
                left.pop(one.key, None)
            if ended and (not left or time.monotonic() - spoke > _TOGETHER_SECONDS):
                spoke = time.monotonic()
                yield [self._answer(one, trip.cells) for one in ended]
                ended = []

    # -- before ----------------------------------------------------------------------------------------------

    def _assigned(self, cell: Cell, trip: TripParcel) -> Assignment:
        parents = {name: self._folder(key, trip.folders[key]) for name, key in cell.sources.items()}
        out = self._store.staging(cell.key) if cell.step == READING else self._store.stage(cell.key)
        if trip.code is not None:
            source = {**cell.how["source"], "module": str(self._code(trip.code))}
            cell = replace(cell, how={**cell.how, "source": source})
        return Assignment(cell, parents, out)

    def _folder(self, key: str, parcel: FolderParcel) -> Path:
        """A finished cell's folder as the store has it; under the same path always, as loaders remember."""
        if key not in self._folders:
            folder = self._store.stage(f"parent-{key}")
            for file in parcel.files:
                _link(self._files.take(file, self._ray.get), folder / file.name)
            (folder / MANIFEST).write_bytes(parcel.manifest)
            self._folders[key] = folder
        return self._folders[key]

    def _code(self, parcel: FileParcel) -> Path:
        """A user's file under its own name: a module is called as its file."""
        folder = self._store.staging(f"code-{parcel.sha256}")
        folder.mkdir(exist_ok=True)
        file = folder / parcel.name
        if not file.exists():
            shutil.copyfile(self._files.take(parcel, self._ray.get), file)
        return file.resolve()

    # -- after -----------------------------------------------------------------------------------------------

    def _answer(self, ended: Ended, cells: Iterable[Cell]) -> CellAnswer:
        outcome, files = ended.outcome, []
        if outcome.fixable is not None and outcome.fixable.cause is Cause.DISK:
            outcome = replace(outcome, fixable=self._full())
        reading = any(cell.key == ended.key and cell.step == READING for cell in cells)
        if not reading:
            if outcome.status in KEPT:
                staged = sorted(self._store.staging(ended.key).iterdir())
                files = [pack_file(file, file_hash(file), self._ray.put) for file in staged]
            self._store.unstage(ended.key)
        return CellAnswer(ended.key, outcome, tuple(files))

    def _failed(self, problem: OSError) -> Outcome:
        known = fixable(problem)
        if known is not None and known.cause is Cause.DISK:
            known = self._full()
        return Outcome(Status.FAILED, described(problem), fixable=known)

    def _full(self) -> Fixable:
        return Fixable(
            Cause.USER,
            f"the disk of {self._root} on node {self._name} is full; free some space there, or set "
            "TMPDIR before `ray start`, then run the same command again: finished cells are kept",
        )


def _link(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except OSError:  # a disk without links
        shutil.copyfile(file, target)
