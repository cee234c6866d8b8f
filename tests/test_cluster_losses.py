"""What the driver of a cluster does when workers are lost, on a made-up Ray: no process is started."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genbench.cluster import executor as cluster_executor
from genbench.cluster.executor import RayExecutor
from genbench.cluster.node import packages_here
from genbench.cluster.parcels import CellAnswer, FileParcel, NodeFacts, TransferDamaged, TripParcel
from genbench.engine.cells import Assignment, Limits, Outcome, Status, Step, make_cell
from genbench.engine.executors import Ended, Note, Trip
from genbench.errors import UserError
from genbench.plugin.offers import ExecutorRequest

STEP = Step("made", "nowhere:nothing", "make")
Behaviour = Callable[[int, TripParcel], Iterator[list[CellAnswer]]]


class Lost(Exception):
    """As Ray says it."""


class Failed(Exception):
    """What a worker raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """One node with four processors; what its workers answer is the test's business."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Failed)

    def __init__(self, behaviour: Behaviour, packages: dict[str, str] | None = None) -> None:
        self._behaviour = behaviour
        self._packages = packages or packages_here()
        self.started = self.killed = 0

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0, "memory": 2.0**33}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"object_store_memory": 1e8}

    def put(self, piece: bytes) -> bytes:
        return piece

    def get(self, value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    def wait(self, refs: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return refs, []

    def kill(self, actor: Any, no_restart: bool) -> None:
        self.killed += 1

    def remote(self, form: type) -> Any:
        def start(limits: Limits) -> Any:
            self.started += 1
            number = self.started
            facts = NodeFacts(f"node-{number}", self._packages, "")

            def compute(trip: TripParcel) -> Iterator[Any]:
                answers = self._behaviour(number, trip)
                while True:
                    try:
                        yield next(answers)
                    except StopIteration:
                        return
                    except Exception as problem:
                        yield problem
                        return

            return SimpleNamespace(
                facts=SimpleNamespace(remote=lambda: facts),
                compute=SimpleNamespace(options=lambda **_: SimpleNamespace(remote=compute)),
            )

        return SimpleNamespace(options=lambda **needs: SimpleNamespace(remote=start))


@pytest.fixture
def cells(tmp_path: Path) -> list[Assignment]:
    found = []
    for n in range(3):
        cell = make_cell(STEP, str(n), {"n": n}, group="all", together="all")
        (tmp_path / str(n)).mkdir()
        found.append(Assignment(cell, {}, tmp_path / str(n)))
    return found


def brought_to_end(
    monkeypatch: pytest.MonkeyPatch, folder: Path, cells: list[Assignment], ray: FakeRay, jobs: int = 1
) -> tuple[dict[str, Outcome], list[str]]:
    """(label to outcome, notes), as `run_cells` would have them."""
    monkeypatch.setattr(cluster_executor, "import_ray", lambda: ray)
    executor = RayExecutor(ExecutorRequest(jobs, Limits(60, 2**30), folder))
    ended: dict[str, Outcome] = {}
    notes: list[str] = []
    labels = {one.cell.key: one.cell.label for one in cells}
    handed = False
    for _ in range(100):
        if not handed and (free := executor.free()):
            executor.submit(free[0], Trip(tuple(cells)))
            handed = True
        for said in executor.wait(0.01):
            if isinstance(said, Note):
                notes.append(said.text)
            else:
                assert isinstance(said, Ended)
                assert labels[said.key] not in ended, "once"
                ended[labels[said.key]] = said.outcome
        if len(ended) == len(cells):
            break
    executor.close()
    return ended, notes


def good(trip: TripParcel) -> Iterator[list[CellAnswer]]:
    for cell in trip.cells:
        yield [CellAnswer(cell.key, Outcome(Status.OK, result={"label": cell.label}))]


def test_what_a_lost_worker_left_is_done_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment]
) -> None:
    asked = []

    def once_lost(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        asked.append([cell.label for cell in trip.cells])
        if number == 1:
            yield next(good(trip))
            raise Lost("the node is gone")
        yield from good(trip)

    ended, notes = brought_to_end(monkeypatch, tmp_path, cells, ray := FakeRay(once_lost))
    assert {label: one.result["label"] for label, one in ended.items()} == {"0": "0", "1": "1", "2": "2"}
    # The one it was at alone, lest it take the others with it.
    assert asked == [["0", "1", "2"], ["1"], ["2"]]
    assert len(notes) == 1
    assert "node-1 was lost" in notes[0]
    assert "2 cells are computed again" in notes[0]
    assert ray.started == 2


def test_a_cell_that_takes_three_workers_down_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment]
) -> None:
    def poisoned(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        for cell in trip.cells:
            if cell.label == "1":
                raise Lost("out of memory")
            yield [CellAnswer(cell.key, Outcome(Status.OK))]

    ended, _ = brought_to_end(monkeypatch, tmp_path, cells, FakeRay(poisoned))
    assert {label: one.status for label, one in ended.items()} == {
        "0": Status.OK, "1": Status.CRASHED, "2": Status.OK,
    }  # fmt: skip
    assert "3 workers were lost" in ended["1"].reason


def test_files_come_back_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment]
) -> None:
    content = b"weights" * 100

    def damaged_once(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        sent = content if number > 1 else content[:-1] + b"?"
        file = FileParcel("w.bin", hashlib.sha256(content).hexdigest(), len(content), (sent,))
        for cell in trip.cells:
            yield [CellAnswer(cell.key, Outcome(Status.OK), (file,))]

    ended, notes = brought_to_end(monkeypatch, tmp_path, cells, FakeRay(damaged_once))
    assert {one.status for one in ended.values()} == {Status.OK}
    assert {one.out.joinpath("w.bin").read_bytes() for one in cells} == {content}
    assert "another content" in notes[0]


@pytest.mark.parametrize("name", ["../escape", "manifest.json", "..", "a/b"])
def test_names_of_files_cannot_leave_their_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment], name: str
) -> None:
    def outside(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        file = FileParcel(name, hashlib.sha256(b"x").hexdigest(), 1, (b"x",))
        yield [CellAnswer(trip.cells[0].key, Outcome(Status.OK), (file,))]

    ended, _ = brought_to_end(monkeypatch, tmp_path, cells[:1], FakeRay(outside))
    assert ended["0"].status is Status.CRASHED
    assert "no name of a cell's file" in ended["0"].reason
    assert list(cells[0].out.iterdir()) == []
    assert not (tmp_path / "escape").exists()


def test_what_a_person_can_fix_on_a_node_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment]
) -> None:
    def unable(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        raise Failed(UserError("workers cannot be started"))
        yield

    with pytest.raises(UserError, match="on node node-1: workers cannot be started"):
        brought_to_end(monkeypatch, tmp_path, cells, FakeRay(unable))
    other = {**packages_here(), "torch": "0.4"}
    with pytest.raises(UserError, match=r"node node-1 has torch 0\.4, not .*: the bits .* might differ"):
        brought_to_end(monkeypatch, tmp_path, cells, FakeRay(unable, other))


def test_a_cell_that_no_node_has_room_for_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from genbench.engine.compute import Compute

    monkeypatch.setattr(cluster_executor, "import_ray", lambda: FakeRay(lambda number, trip: good(trip)))
    limits = Limits(60, 2**30, Compute("cpu", threads=8))
    with pytest.raises(UserError, match=r"no node .* has 8 processors .* the largest has 4"):
        RayExecutor(ExecutorRequest(1, limits, tmp_path))
    with pytest.raises(UserError, match="and a GPU"):
        RayExecutor(ExecutorRequest(1, Limits(60, 2**30, Compute("cuda:0")), tmp_path))


def test_damage_that_a_node_found_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: list[Assignment]
) -> None:
    def found(number: int, trip: TripParcel) -> Iterator[list[CellAnswer]]:
        if number == 1:
            raise TransferDamaged("weights arrived with another content")
        yield from good(trip)

    ended, notes = brought_to_end(monkeypatch, tmp_path, cells, FakeRay(found))
    assert {one.status for one in ended.values()} == {Status.OK}
    assert len(notes) == 1
