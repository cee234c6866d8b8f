"""A flipped byte anywhere is found, named, and costs one cell."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from conftest import MEASURES, cell_files, options
from kills import table
from test_engine import finished, starts

from genbench.engine.cells import Cell, Cost, Outcome, Status, make_cell
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.store import Damage, Store, read_manifest
from genbench.errors import StoreError
from genbench.plugin.registry import find_measure
from genbench.runs.plan import make_plan
from genbench.suites import load_suite


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position % len(content)] ^= 0x10
    file.write_bytes(content)


@pytest.fixture
def store(tmp_path, finished_run) -> Path:
    shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store"


def test_a_flipped_byte_in_any_file_of_any_cell_is_detected_and_named(store) -> None:
    chance = random.Random(0)
    files = sorted(path for path in (store / "cells").rglob("*") if path.is_file())
    assert len(files) > 60
    with Store(store) as opened:
        for file in files:
            original = file.read_bytes()
            for position in {0, len(original) - 1, chance.randrange(len(original))}:
                flip(file, position)
                found = opened.read(file.parent.name)
                assert isinstance(found, Damage), f"{file} at {position}"
                assert found.file == file
                file.write_bytes(original)
        for file in files:
            assert isinstance(opened.read(file.parent.name), Outcome)


def files_by_kind(store: Path) -> dict[tuple[str, str], Path]:
    """One file of every kind: (kind of cell, name of file) to it."""
    files = sorted(path for path in (store / "cells").rglob("*") if path.is_file())
    return {(str(read_manifest(file.parent)["kind"]), file.name): file for file in files}


@pytest.mark.slow
def test_a_damaged_cell_is_made_again_and_no_other(run, tmp_path, store) -> None:
    kinds = files_by_kind(store)
    network = {"initial.safetensors", "final.safetensors", "trace.safetensors"}
    expected = {
        "population_training": {"digits.0.safetensors"},
        "population_heldout": {"digits.0.safetensors"},
        "population_block": network,
        "population_evidence": {"evidence.safetensors"},
        "reading": set(),
    }
    always = {"manifest.json", "cost.json"}
    assert kinds.keys() == {(kind, name) for kind, own in expected.items() for name in own | always}
    sound, rows = cell_files(store), table(store)
    damaged: dict[str, list[Path]] = {}
    for (kind, name), file in kinds.items():
        if name not in always or kind == "reading":
            damaged.setdefault(file.parent.name, []).append(file)
    assert len(damaged) == 5
    # At once one file of each cell, then another of those that have one.
    for round_ in itertools.zip_longest(*damaged.values()):
        files = [file for file in round_ if file is not None]
        before = starts(store)
        for file in files:
            flip(file, file.stat().st_size // 2)
        result = run(*options("--store", "store"))
        assert result.returncode == 0, result.stderr
        for file in files:
            assert f"{file.parent.parent.name}/{file.parent.name}/{file.name}" in result.stderr
        begun = {key for key, count in starts(store).items() if count != before.get(key)}
        assert begun == {file.parent.name for file in files}
        assert cell_files(store) == sound
        assert table(store) == rows


def test_a_missing_or_foreign_file_is_damage_too(store) -> None:
    cell = next(path for path in (store / "cells").glob("*/*") if (path / "final.safetensors").exists())
    with Store(store) as opened:
        (cell / "extra.txt").write_text("?")
        assert "not written by genbench" in str(opened.read(cell.name))
        (cell / "extra.txt").unlink()
        (cell / "final.safetensors").unlink()
        assert "final.safetensors" in str(opened.read(cell.name))


def test_a_damaged_table_is_named_and_rebuilt_from_the_cells(store) -> None:
    rows = table(store)  # also folds the write-ahead log into the file
    database = store / "readings.sqlite"
    sound = database.read_bytes()
    chance = random.Random(1)
    plan = make_plan(load_suite(str(store.parent / "tiny.toml")), _entries())
    noticed = 0
    for position in [0, 20, 100, *(chance.randrange(len(sound)) for _ in range(20))]:
        for leftover in store.glob("readings*"):
            leftover.unlink()
        database.write_bytes(sound)
        flip(database, position)
        with Store(store) as opened:
            opened_table = ReadingTable(opened)
            notes = [opened_table.repaired] if opened_table.repaired else []
            for cell in plan.readings.values():
                outcome = opened.read(cell.key)
                assert isinstance(outcome, Outcome)
                if note := opened_table.ensure(cell, outcome):
                    notes.append(note)
            opened_table.close()
        assert table(store) == rows, position
        assert all("readings.sqlite" in note for note in notes)
        noticed += bool(notes)
    # The rest fell on unused bytes or on the history of events, which no result depends on.
    assert noticed >= 5


def _entries():
    names = [*MEASURES, "baseline_constant", "baseline_size"]
    return [entry for name in names for entry in find_measure(name)]


def a_cell(value: int = 1) -> Cell:
    return make_cell(READING, "a reading", {"value": value}, about={
        "suite": "s", "quick": False, "subject": "x", "measure": "m",
    })  # fmt: skip


def test_a_commit_is_whole_or_not_at_all(tmp_path) -> None:
    cell = a_cell()
    with Store(tmp_path / "s") as store:
        folder = store.stage(cell.key)
        (folder / "data.bin").write_bytes(b"abc")
        assert store.read(cell.key) is None
        store.commit(cell, Outcome(Status.OK, result={"value": 0.1 + 0.2}, cost=Cost(1.5)), {"time": "now"})
        found = store.read(cell.key)
        assert isinstance(found, Outcome)
        assert (found.status, found.value, found.cost.seconds, found.computed) == (
            Status.OK,
            0.1 + 0.2,
            1.5,
            False,
        )
        # A second commit of the same cell keeps the first.
        (store.stage(cell.key) / "data.bin").write_bytes(b"abc")
        store.commit(cell, Outcome(Status.OK, result={"value": 0.1 + 0.2}, cost=Cost(9.9)), {})
        again = store.read(cell.key)
        assert isinstance(again, Outcome)
        assert again.cost.seconds == 1.5


def test_locks_keep_runs_apart_and_die_with_them(tmp_path) -> None:
    import subprocess
    import sys

    key = a_cell().key
    code = (
        f"import sys, time; from pathlib import Path; from genbench.engine.store import Store\n"
        f"store = Store(Path({str(tmp_path / 's')!r})); print(store.try_lock({key!r}), flush=True)\n"
        f"time.sleep(60)"
    )
    with Store(tmp_path / "s") as store:
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "True"
        assert not store.try_lock(key)
        assert len(list((tmp_path / "s" / "staging").iterdir())) == 2
        other.kill()
        other.wait()
        assert store.try_lock(key)
    with Store(tmp_path / "s"):
        # The killed run's folder is gone as soon as another run opens the store.
        assert len(list((tmp_path / "s" / "staging").iterdir())) == 1


def test_folders_that_are_no_store_are_refused(tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="neither a genbench store nor empty"):
        Store(tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Store(tmp_path / "file")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "genbench-store.json").write_text('{"format": 99}')
    with pytest.raises(StoreError, match="format 1"):
        Store(tmp_path / "old")


def test_failures_are_recorded_but_not_kept(tmp_path) -> None:
    cell = a_cell()
    with Store(tmp_path / "s") as store:
        readings = ReadingTable(store)
        readings.started([cell])
        readings.ended([(cell, Outcome(Status.CRASHED, "its process died"))])
        assert store.read(cell.key) is None
        readings.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "s" / "readings.sqlite")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        recorded = connection.execute("SELECT suite, measure, status, value FROM readings").fetchall()
        assert recorded == [("s", "m", "crashed", None)]


def test_finished_lists_what_is_there(store) -> None:
    with Store(store) as opened:
        assert set(opened.finished()) == finished(store)


def test_a_half_removed_folder_of_a_killed_run_goes_after_a_minute(tmp_path) -> None:
    """A worker that outlives its run for a moment writes to a folder that is being removed, lock and all."""
    Store(tmp_path).close()
    left = tmp_path / "staging" / "1-abcdef01"
    (left / "scratch").mkdir(parents=True)
    Store(tmp_path).close()
    assert left.exists(), "it may be one that is being removed at this moment"
    os.utime(left, (0, 0))
    Store(tmp_path).close()
    assert not left.exists()
