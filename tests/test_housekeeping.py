"""Completion, `open`, `--version` and `gc`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import Run, cell_files, environment

# -- completion ---------------------------------------------------------------------------------------------


def completed(words: str) -> list[str]:
    """What bash is told after a press of Tab."""
    place = str(len(words.split(" ")) - 1)
    told = {"_GENBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run(
        [sys.executable, "-m", "genbench"], env={**environment(), **told}, capture_output=True, text=True
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_names_are_completed() -> None:
    assert completed("genbench lea") == ["leaderboard"]
    assert "path_norm_over_margin" in completed("genbench run --measure path_no")
    assert completed("genbench run --suite nin-di") == ["nin-digits"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(run: Run, shell) -> None:
    script = run("completion", shell).stdout
    assert "_GENBENCH_COMPLETE" in script
    assert "genbench" in script
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
        assert check.returncode == 0, check.stderr


# -- version and open ---------------------------------------------------------------------------------------


def test_the_version_names_torchs_without_importing_it(run_process: Run) -> None:
    done = run_process("--version")
    assert done.returncode == 0
    python = ".".join(map(str, sys.version_info[:3]))
    assert done.stdout == f"genbench 0.1.0 (torch {version('torch')}, Python {python})\n"


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    import webbrowser

    seen: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(seen.append(url)) or True)
    return seen


def test_the_last_report_is_opened(run: Run, tmp_path, opened) -> None:
    none = run("open")
    assert none.returncode == 2
    assert "`genbench run` writes one" in none.stderr
    reports = tmp_path / ".genbench" / "reports"
    reports.mkdir(parents=True)
    for age, name in ((10, "mini.html"), (20, "digits--quick.html")):
        (reports / name).write_text("page")
        os.utime(reports / name, (1e9 - age, 1e9 - age))
    assert run("open").returncode == 0
    assert run("open", "--suite", "digits").returncode == 0
    assert [Path(url).name for url in opened] == ["mini.html", "digits--quick.html"]
    assert run("open", "--suite", "lite").returncode == 2


def test_the_site_and_a_page_are_opened(run: Run, tmp_path, opened) -> None:
    missing = run("open", "--site", "site")
    assert "genbench leaderboard build --site site" in missing.stderr
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("page")
    (tmp_path / "mine.html").write_text("page")
    assert run("open", "--site", "site").returncode == 0
    assert run("open", "mine.html").returncode == 0
    assert [Path(url).name for url in opened] == ["index.html", "mine.html"]
    assert run("open", "mine.html", "--site", "site").returncode == 2


# -- gc -----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(finished_run, tmp_path) -> Path:
    """A finished run with a reading of a file, one of an older version, drawings and a damaged table."""
    shutil.copytree(finished_run / "store", tmp_path / ".genbench")
    shutil.copy(finished_run / "tiny.toml", tmp_path)
    return tmp_path / ".genbench"


def held(run: Run, *options: str) -> dict[str, dict]:
    done = run("gc", "--json", *options)
    assert done.returncode == 0, done.stderr
    return {one["sort"]: one for one in json.loads(done.stdout)["held"]}


def test_a_store_is_looked_through_without_being_changed(run: Run, store) -> None:
    before = cell_files(store)
    found = held(run)
    assert cell_files(store) == before
    readings = sum(
        b'"kind": "reading"' in text for name, text in before.items() if name.endswith("manifest.json")
    )
    assert found["readings"]["count"] == readings
    assert found["work"]["count"] == sum(name.endswith("manifest.json") for name in before) - readings
    whole = sum(path.stat().st_size for path in (store / "cells").rglob("*") if path.is_file())
    assert sum(one["bytes"] for one in found.values() if one["sort"] != "drawings") == whole


def test_what_can_go_goes_and_the_rest_stays(run: Run, store, monkeypatch) -> None:
    from genbench.api import housekeeping

    (store.parent / "mine.py").write_text(
        "import genbench\n@genbench.measure\ndef mine(s):\n    'M.'\n    return 1.0\n"
    )
    assert run("run", "--measure", "mine.py", "--suite", "tiny.toml").returncode == 0
    (store / "figures").mkdir(exist_ok=True)
    (store / "figures" / "x.svg").write_text("drawing")
    (store / "readings.damaged-1.sqlite").write_text("broken")
    found = held(run)
    assert found["other code"]["count"] == 3
    assert found["damaged"]["count"] == 1
    kept = found["readings"]["count"]
    # As if all measures were read by an earlier genbench.
    monkeypatch.setattr(housekeeping, "SUBJECT_VERSION", "another")
    assert held(run)["old readings"]["count"] == kept
    monkeypatch.undo()
    done = run("gc", "--delete")
    assert "removed" in done.stdout
    after = held(run)
    assert set(after) == {"work", "readings", "other code"}
    assert after["readings"]["count"] == kept
    held(run, "--delete", "--what", "other code")
    assert set(held(run)) == {"work", "readings"}
    again = run("run", "--measure", "path_norm", "--suite", "tiny.toml")
    assert "nothing to compute" in again.stderr
    assert "sqlite" not in again.stderr, "the index has no row too many"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--what", "copies"), "give --delete too"),
        (("--delete", "--what", "work"), "remove the whole store"),
        (("--delete", "--what", "zzz"), "there are old readings"),
        (("--store", "nowhere"), "there is no store nowhere"),
    ],
)
def test_what_gc_refuses(run: Run, store, options, said) -> None:
    done = run("gc", *options)
    assert done.returncode == 2
    assert said in done.stderr
