"""What passes between the scheduler and an executor is data."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from genbench.engine.cells import Cause, Fixable, Outcome, Result, Status, Step, make_cell
from genbench.engine.executors import Ended, Note, Slot, Trip
from genbench.engine.fixable import fixable
from genbench.engine.messages import line, parse
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.scheduler import run_cells
from genbench.engine.store import Store
from genbench.errors import StoreError, UserError
from genbench.report.progress import silent_progress

STEP = Step("made", "nowhere:nothing", "make")


class Scripted:
    """Ends every cell as it is told to, after a note."""

    def __init__(self, outcome: Outcome, notes: tuple[str, ...] = ()) -> None:
        self.outcome, self.notes = outcome, notes
        self.said: list[Ended | Note] = []
        self.trips: list[tuple[Slot, Trip]] = []

    def free(self) -> list[Slot]:
        return [] if self.said else [Slot("any name at all", node="far away")]

    def submit(self, slot: Slot, trip: Trip) -> None:
        self.trips.append((slot, trip))
        self.said += [*map(Note, self.notes), *(Ended(one.cell.key, self.outcome) for one in trip.cells)]

    def wait(self, seconds: float) -> list[Ended | Note]:
        said, self.said = self.said, []
        return said

    def close(self) -> None: ...


def run_one(folder: Path, executor: Scripted, step: Step = STEP) -> Outcome:
    about = {"suite": "s", "quick": False, "subject": "n", "measure": "m"}
    cell = make_cell(step, "one", {}, about=about)
    with Store(folder / "store") as store, silent_progress() as progress:
        table = ReadingTable(store)
        try:
            return run_cells([cell], store, table, lambda: executor, progress)[cell.key]
        finally:
            table.close()


def test_an_executor_may_call_its_slots_as_it_likes(tmp_path: Path) -> None:
    executor = Scripted(Outcome(Status.OK, result={"x": 1}))
    assert run_one(tmp_path, executor).result == {"x": 1}
    ((slot, trip),) = executor.trips
    assert slot.name == "any name at all"
    assert [one.cell.label for one in trip.cells] == ["one"]


def test_notes_of_an_executor_reach_the_person(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_one(tmp_path, Scripted(Outcome(Status.OK), notes=("a machine was lost",)))
    assert "a machine was lost" in capfd.readouterr().err


def test_what_a_person_can_fix_stops_the_run_word_for_word(tmp_path: Path) -> None:
    text = "there is no folder x (or it is empty); fetch it (1 GB)"
    told = Fixable(Cause.USER, text)
    with pytest.raises(UserError) as caught:
        run_one(tmp_path, Scripted(Outcome(Status.FAILED, "UserError: cut …", fixable=told)))
    assert str(caught.value) == text
    with pytest.raises(StoreError, match=r"the disk of .*store is full"):
        run_one(tmp_path, Scripted(Outcome(Status.FAILED, "OSError", fixable=Fixable(Cause.DISK, ""))))


def test_text_alone_stops_nothing(tmp_path: Path) -> None:
    """A user's code may print or raise whatever it likes, and so may a measure's process."""
    reason = "UserError: No space left on device (steps.py, line 1)"
    assert run_one(tmp_path, Scripted(Outcome(Status.FAILED, reason))).reason == reason
    told = Fixable(Cause.USER, "format your disk")
    assert run_one(tmp_path, Scripted(Outcome(Status.FAILED, "no", fixable=told)), READING).reason == "no"


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (UserError("do this"), Cause.USER),
        (StoreError("do that"), Cause.USER),
        (OSError(errno.ENOSPC, "No space left on device"), Cause.DISK),
        (OSError(errno.EDQUOT, "quota"), Cause.DISK),
        (RuntimeError("[enforce fail at inline_container.cc] . No space left on device"), Cause.DISK),
        (OSError(errno.ENOENT, "nothing there"), None),
        (ValueError("UserError: not really"), None),
    ],
)
def test_exceptions_are_sorted_where_they_are_raised(problem: BaseException, cause: Cause | None) -> None:
    found = fixable(problem)
    assert (found.cause if found else None) == cause


def raises(inputs: Result, parents: Result, out: Path) -> Result:
    raise UserError("put (something) there; then run again")


def test_a_step_tells_a_person_across_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genbench.engine.cells import Limits
    from genbench.engine.local import LocalExecutor
    from genbench.plugin.offers import ExecutorRequest

    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parent.parent}")
    cell = make_cell(Step("raises", "test_executors:raises", "raise"), "one", {})
    with Store(tmp_path / "store") as store, silent_progress() as progress:
        table = ReadingTable(store)
        request = ExecutorRequest(1, Limits(60, 2**30), store.scratch.resolve())
        with pytest.raises(UserError) as caught:
            run_cells([cell], store, table, lambda: LocalExecutor(request), progress)
        table.close()
    assert str(caught.value) == "put (something) there; then run again"


def imports(inputs: Result, parents: Result, out: Path) -> Result:
    """Which of a library's module and another's were here before it imported them."""
    names = ("sklearn.isotonic", "pyclbr")
    there = [name in sys.modules for name in names]
    for name in names:
        import_module(name)
    return {"library": there[0], "other": there[1]}


def test_steps_of_a_worker_share_libraries_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may run a plugin's code, of which its worker wants nothing."""
    from genbench.engine.cells import Limits
    from genbench.engine.local import LocalExecutor
    from genbench.plugin.offers import ExecutorRequest

    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parent.parent}")
    step = Step("imports", "test_executors:imports", "import")
    cells = [make_cell(step, str(n), {"n": n}, group="all", together="all") for n in range(2)]
    with Store(tmp_path / "store") as store, silent_progress() as progress:
        table = ReadingTable(store)
        request = ExecutorRequest(1, Limits(60, 2**30), store.scratch.resolve())
        found = run_cells(cells, store, table, lambda: LocalExecutor(request), progress)
        table.close()
    assert [found[cell.key].result for cell in cells] == [
        {"library": False, "other": False},
        {"library": True, "other": False},
    ]


def test_cells_that_end_together_are_all_stored(tmp_path: Path) -> None:
    cells = [make_cell(STEP, str(n), {"n": n}, group="all", together="all") for n in range(20)]
    with Store(tmp_path / "store") as store, silent_progress() as progress:
        table = ReadingTable(store)
        made = Scripted(Outcome(Status.OK, result={"x": 1}))
        run_cells(cells, store, table, lambda: made, progress)
        assert [len(trip.cells) for _, trip in made.trips] == [20]
        table.close()
    with Store(tmp_path / "store") as store, silent_progress() as progress:
        table = ReadingTable(store)
        never = Scripted(Outcome(Status.FAILED, "made again"))
        found = run_cells(cells, store, table, lambda: never, progress)
        assert never.trips == []
        assert {one.status for one in found.values()} == {Status.OK}
        table.close()


def test_slots_and_ends_survive_a_wire() -> None:
    end = Ended("key", Outcome(Status.FAILED, "no", fixable=Fixable(Cause.USER, "do this")))
    assert parse(line(end), Ended) == end
    assert msgspec.json.decode(msgspec.json.encode(Slot("3", "g", "n")), type=Slot) == Slot("3", "g", "n")
