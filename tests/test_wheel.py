"""An installed genbench is the same product: built as a wheel, installed in a fresh environment, run in an
empty folder, it ranks every measure as the board does, and as a checkout does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BOARD = {row["measure"]: row for row in json.loads((ROOT / "leaderboards" / "mini.json").read_text())["rows"]}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("documents")]  # whose readers use its store


def called(*words: str | Path, cwd: Path, **environment: str) -> str:
    """What a command says, without anything of this process's Python settings."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("GENBENCH_", "PYTHON"))
    }
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(wheels_folder: Path) -> Path:
    return wheels_folder


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """Built from a copy: a build leaves folders behind that would find their way into the next one."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "genbench", source / "genbench", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder)
    called(sys.executable, "-m", "pip", "wheel", *options, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Path:
    """The bin folder of a fresh environment with the wheel in it.

    It sees the dependencies of this one through a path file. Path files that lie there are not read, so that
    the editable install of the checkout is out of reach.
    """
    fresh = folder / "fresh"
    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    options = ("--no-deps", "--no-index", "--disable-pip-version-check")
    called(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    (packages,) = fresh.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.fixture(scope="module")
def from_wheel(folder: Path, installed: Path) -> dict[str, Any]:
    """A run of the installed command in an empty folder."""
    empty = folder / "empty"
    assert not [*empty.iterdir()]
    # One worker: of other tests there are as many as processors, and each would import torch and open_clip.
    said = called(installed / "genbench", "run", "--measure", "path_norm", "--json", "--jobs", "1", cwd=empty)
    document: dict[str, Any] = json.loads(said)
    return document


@pytest.fixture(scope="module")
def from_checkout(folder: Path, from_wheel: dict[str, Any]) -> dict[str, Any]:
    """The same of this checkout; the readings are found in the store, because their keys are the same."""
    said = called(
        sys.executable, "-m", "genbench", "run", "--measure", "path_norm", "--json", cwd=folder / "empty",
        PYTHONPATH=str(ROOT),
    )  # fmt: skip
    document: dict[str, Any] = json.loads(said)
    return document


CELLS = """
import ast, json, os, sys

os.cpu_count = lambda: 1  # one worker, as above
cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
names = {"__name__": "__main__"}
for text in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        view = getattr(value, "_repr_html_", lambda: None)()
        print("shown", type(value).__name__, len(view or ""))
print("from", names["genbench"].__file__)
"""
"""A notebook cell by cell, and what it would show of the last expression of each."""


def ranks(document: dict[str, Any]) -> dict[str, int | None]:
    return {measure["name"]: measure["rank"] for measure in document["measures"]}


def sign_errors(document: dict[str, Any]) -> dict[str, float | None]:
    scores = {measure["name"]: measure["sign_error"] for measure in document["measures"]}
    return {name: score and round(score["value"], 6) for name, score in scores.items()}


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    tracked = called("git", "ls-files", "genbench", cwd=ROOT).splitlines()
    references = [
        file.relative_to(ROOT).as_posix() for file in (ROOT / "genbench").rglob("references/*.json")
    ]
    assert {Path(name).name for name in references} == {"mini.json", "nin-fashion.json"}
    # Code that only a developer runs is code too; what git knows, the wheel has.
    missing = {*tracked, *references} - {*zipfile.ZipFile(wheel).namelist()}
    assert missing == set()
    endings = {Path(name).suffix for name in tracked}
    assert {".j2", ".toml", ".safetensors", ".nc", ".js", ".css", ".tmpl", ".xz"} <= endings


def test_what_runs_is_the_wheel(installed: Path, folder: Path) -> None:
    code = (
        "import sys, genbench, genbench.engine.host, genbench.records.references as references\n"
        "print(genbench.__file__, genbench.engine.host.__file__, references.REFERENCES)\n"
        "print(*sys.path, *map(repr, sys.meta_path))"
    )
    files, paths = called(installed / "python", "-P", "-c", code, cwd=folder).splitlines()
    for file in files.split():
        assert Path(file).is_relative_to(folder / "fresh")
    assert "editable" not in paths
    assert str(ROOT) not in paths.split()


def test_a_run_of_the_wheel_ranks_every_measure_as_the_board_does(from_wheel: dict[str, Any]) -> None:
    assert ranks(from_wheel) == {name: row["rank"] for name, row in BOARD.items()}
    assert sign_errors(from_wheel) == {
        name: row["sign_error"] and row["sign_error"]["value"] for name, row in BOARD.items()
    }


def test_a_run_of_the_checkout_says_the_same(
    from_wheel: dict[str, Any], from_checkout: dict[str, Any]
) -> None:
    assert ranks(from_checkout) == ranks(from_wheel)
    assert sign_errors(from_checkout) == sign_errors(from_wheel)
    computed = [measure["name"] for measure in from_wheel["measures"] if not measure["reference"]]
    assert computed == ["path_norm"], "the baselines are recorded too"
    assert all(
        reading["stored"] for measure in from_checkout["measures"] for reading in measure["readings"]
    ), "the checkout found other keys than the wheel"


def test_the_wheel_writes_a_report_that_needs_no_checkout(folder: Path, from_wheel: dict[str, Any]) -> None:
    page = (folder / "empty" / from_wheel["report"]).read_text()
    assert "judged by" in page
    assert str(ROOT) not in page


NOTEBOOK = ROOT / "docs" / "notebooks" / "first_measure.ipynb"


def test_the_first_notebook_runs_out_of_the_wheel(
    folder: Path, installed: Path, from_wheel: dict[str, Any]
) -> None:
    """In the folder of the run above, whose store has the readings of path_norm that it compares with."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines() if line.strip()]
    assert len(lines) <= 25
    said = called(installed / "python", "-P", "-c", CELLS, NOTEBOOK, cwd=folder / "empty", MPLBACKEND="agg")
    words = [line.split() for line in said.splitlines()]
    shown = {line[1]: int(line[2]) for line in words if line[0] == "shown"}
    assert shown.keys() == {"LoadedSuite", "Reading", "Run", "DataFrame", "Comparison", "Figure"}
    assert all(size > 50 for name, size in shown.items() if name != "Figure")
    (package,) = [line[1] for line in words if line[0] == "from"]
    assert Path(package).is_relative_to(folder / "fresh")
