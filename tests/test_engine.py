"""Cells of work that survive anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import MEASURES, TINY_SUITE, cell_files, command, options, readings

from genbench.engine.cells import Cell, make_cell
from genbench.engine.executors import Slot
from genbench.engine.readings import READING
from genbench.plugin.registry import load_registry


def starts(store: Path) -> dict[str, int]:
    """How often the computation of each cell was begun."""
    if not (store / "readings.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(store / "readings.sqlite")) as connection:
        query = "SELECT key, COUNT(*) FROM events WHERE event = 'started' GROUP BY key"
        return dict(connection.execute(query))


def finished(store: Path) -> set[str]:
    return {path.name for path in (store / "cells").glob("*/*")}


@pytest.fixture
def reference(tmp_path, tiny_suite, finished_run) -> Path:
    """The store of one uninterrupted run."""
    return Path(shutil.copytree(finished_run / "store", tmp_path / "reference"))


@pytest.mark.slow
def test_killed_runs_lose_change_and_leave_nothing() -> None:
    """Ten kills of three runs that share a store; the script makes 1,000."""
    words = [sys.executable, str(Path(__file__).with_name("kills.py")), "10", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("10 kills of 3 runs of one store")
    assert " 0 problems" in done.stdout


def test_workers_die_with_a_killed_run(tmp_path, tiny_suite) -> None:
    (tmp_path / "slow.py").write_text(
        "import genbench, time\n@genbench.measure\ndef slow(subject):\n    'Sleeps.'\n    time.sleep(100)\n"
    )
    process = subprocess.Popen(
        command("run", "--measure", "./slow.py", "--suite", tiny_suite),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    import psutil

    deadline = time.monotonic() + 60
    family: list[psutil.Process] = []
    while time.monotonic() < deadline and len(family) < 4:  # two workers, a child each
        family = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.2)
    assert len(family) >= 4
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_ctrl_c_leaves_the_store_sound_and_says_how_to_go_on(run, tmp_path, reference) -> None:
    process = subprocess.Popen(
        command(*options("--store", "stopped")),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not (tmp_path / "stopped" / "cells").is_dir() or not finished(tmp_path / "stopped"):
        time.sleep(0.02)  # until the first of many cells is done
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to go on" in errors
    assert "Traceback" not in errors
    assert len(finished(tmp_path / "stopped")) < len(finished(reference))
    assert run(*options("--store", "stopped")).returncode == 0
    assert cell_files(tmp_path / "stopped") == cell_files(reference)


def test_a_ctrl_c_that_is_swallowed_stops_the_run_all_the_same(tmp_path) -> None:
    """Python drops a KeyboardInterrupt that happens to be raised in a finalizer; here a callback eats it."""
    from genbench.engine.readings import ReadingTable
    from genbench.engine.scheduler import run_cells
    from genbench.engine.store import Store

    class Hungry:
        def begin(self, stored, pending) -> None: ...
        def ended(self, cell, outcome) -> None: ...
        def note(self, text) -> None: ...

        def started(self, cell, node) -> None:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)

    class Idle:
        """Takes a cell and never ends it."""

        def __init__(self) -> None:
            self.taken: list[Cell] = []

        def free(self):
            return [] if self.taken else [Slot("one")]

        def submit(self, slot, trip) -> None:
            self.taken += [one.cell for one in trip.cells]

        def wait(self, seconds):
            return []

        def close(self) -> None: ...

    before = signal.getsignal(signal.SIGINT)
    with Store(tmp_path / "store") as store:
        table = ReadingTable(store)
        with pytest.raises(KeyboardInterrupt):
            run_cells([make_cell(READING, "one", {})], store, table, Idle, Hungry())
        table.close()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bits(run, tmp_path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_SUITE.replace("[4, 6, 8]", "[4, 6]"))
    results = {}
    builtin = [name for name, entry in load_registry().measures.items() if entry.source.kind == "built-in"]
    chosen = [option for name in builtin for option in ("--measure", name)]
    for jobs in ("1", "4"):
        result = run("run", *chosen, "--suite", "tiny.toml", "--json", "--store", f"w{jobs}", "--jobs", jobs)
        assert result.returncode == 0, result.stdout + result.stderr
        results[jobs] = readings(result.stdout)
    assert len(results["1"]) == 2 * len(builtin)
    assert results["1"] == results["4"]
    assert cell_files(tmp_path / "w1") == cell_files(tmp_path / "w4")


def test_two_runs_share_a_store(tmp_path, reference) -> None:
    together = [
        subprocess.Popen(
            command(*options("--store", "shared")),
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    answers = [process.communicate(timeout=300) for process in together]
    assert [process.returncode for process in together] == [0, 0], answers
    assert readings(answers[0][0]) == readings(answers[1][0])
    assert cell_files(tmp_path / "shared") == cell_files(reference)
    # Each cell was computed by one of them, once.
    assert set(starts(tmp_path / "shared").values()) == {1}


def test_running_again_computes_nothing(run, tmp_path, reference) -> None:
    before = starts(reference)
    again = run(*options("--store", "reference"))
    assert again.returncode == 0
    assert starts(reference) == before


def test_quick_results_are_marked_and_kept_apart(run, tmp_path, reference) -> None:
    full = finished(reference)
    quick = run(*options("--store", "reference", "--quick"))
    assert quick.returncode == 0, quick.stderr
    assert '"quick": true' in quick.stdout
    added = finished(reference) - full
    # Two pools of images; a stack and its evidence; readings, with two more baselines.
    assert len(added) == 2 + 2 + len(MEASURES) + 2
    text = run("run", "--measure", "path_norm", "--suite", "tiny.toml", "--store", "reference", "--quick")
    assert "tiny (quick)" in text.stdout
    assert "not comparable with full results" in text.stdout
    assert '"quick": false' in run(*options("--store", "reference")).stdout
