"""The author's loop: `genbench try`, `genbench compare`, and `--debug` wherever a measure fails."""

from __future__ import annotations

import itertools
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Run, command, environment

from genbench.api.trial import file_mark, wait_for_change
from genbench.display.scatter import Point, ScatterPanel
from genbench.display.terminal_scatter import terminal_scatter

MEASURE = """\
import genbench

@genbench.measure
def mine(subject):
    "Sum of squares."
    print("looking at", subject.name)
    total = sum(w.square().sum().item() for w in subject.weights())
    return genbench.Estimate(total, layers={"one": 1.0, "two": 2.0})
"""
BROKEN = """\
import genbench

def helper(subject):
    return 1 / (subject.m - subject.m)

@genbench.measure
def mine(subject):
    "Divides."
    print("before")
    return helper(subject)
"""


@pytest.fixture
def folder(finished_run, tmp_path) -> Path:
    shutil.copytree(finished_run / "store", tmp_path / ".genbench")
    shutil.copy(finished_run / "tiny.toml", tmp_path)
    (tmp_path / "mine.py").write_text(MEASURE)
    return tmp_path


def test_a_measure_is_tried_on_one_network(run: Run, folder) -> None:
    done = run("try", "./mine.py", "--suite", "tiny.toml")
    assert done.returncode == 0, done.stderr
    assert "looking at" in done.stdout, "what it prints is shown"
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    header = next(line for line in lines if line[0] == "measure")
    row = dict(zip(header, next(line for line in lines if line[0] == "mine"), strict=True))
    assert row["status"] == "ok"
    assert float(row["MB"]) > 10
    assert ["one", "1"] in lines
    assert ["two", "2"] in lines, "what each layer gave"


def test_several_networks_give_a_scatter_and_a_picture(run: Run, folder) -> None:
    done = run("try", "mine.py:mine", "--few", "3", "--suite", "tiny.toml", "--picture", "out.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("●") == 3
    assert "gap: training − held-out accuracy" in done.stdout
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")


def test_the_reading_is_that_of_a_run(run: Run, folder, finished_run) -> None:
    done = run("try", "path_norm", "--few", "3", "--suite", "tiny.toml", "--json")
    found = {one["network"]: one["value"] for one in json.loads(done.stdout)}
    document = json.loads((finished_run / "run.json").read_text())
    (readings,) = [one["readings"] for one in document["measures"] if one["name"] == "path_norm"]
    assert found == {one["subject"]: one["value"] for one in readings}


def test_an_error_shows_the_authors_lines_and_none_before(run: Run, folder) -> None:
    (folder / "mine.py").write_text(BROKEN)
    done = run("try", "mine.py", "--suite", "tiny.toml")
    assert done.returncode == 1
    assert "before" in done.stdout
    trace = done.stderr
    assert "return helper(subject)" in trace
    assert "return 1 / (subject.m - subject.m)" in trace
    assert "ZeroDivisionError" in trace
    assert "genbench/api" not in trace, "frames above the author's are no news to him"


def test_a_file_that_cannot_be_imported_shows_where(run: Run, folder) -> None:
    (folder / "mine.py").write_text("import genbench\n\nvalue = {}['key']\n")
    done = run("try", "mine.py", "--suite", "tiny.toml")
    assert done.returncode == 1
    assert "value = {}['key']" in done.stderr
    assert "line 3" in done.stderr


def test_refusals(run: Run, folder) -> None:
    for arguments, said in (
        (("mine.py", "--network", "a", "--few", "2"), "give one of them"),
        (("path_norm", "--watch"), "--watch looks at a file"),
        (("mine.py", "--picture", "x.gif"), "ends in .png"),
        (("mine.py", "--network", "width=5"), "unknown network"),
    ):
        done = run("try", *arguments, "--suite", "tiny.toml")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def debugged(folder: Path, text: str, script: str, *options: str) -> str:
    """What a person sees who types `script`."""
    (folder / "mine.py").write_text(text)
    done = subprocess.run(
        command("try", "mine.py", "--suite", "tiny.toml", *options),
        input=script, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_breakpoint_stops_in_the_authors_file(folder) -> None:
    text = MEASURE.replace("    total =", "    breakpoint()\n    total =")
    shown = debugged(folder, text, "p subject.m * 1000\nnext\np 'total', round(total) > 0\ncontinue\n")
    assert "mine.py(" in shown
    assert "60000" in shown, "the tiny suite has 60 training examples"
    assert "('total', True)" in shown


def test_the_debugger_opens_where_it_raised(folder) -> None:
    shown = debugged(folder, BROKEN, "p 'at', subject.m\nup\nlist\nquit\n", "--pdb")
    assert "('at', 60)" in shown
    assert "-> return 1 / (subject.m - subject.m)" in shown
    assert "return helper(subject)" in shown.partition("-> return 1 /")[2]


def test_a_change_of_the_file_is_noticed(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("1")
    read = file_mark(file)
    threading.Timer(0.05, lambda: file.write_text("22")).start()
    began = time.monotonic()
    wait_for_change(file, read, seconds=0.01)
    # One that came before anybody waited, while the measure ran.
    wait_for_change(file, read, seconds=0.01)
    assert time.monotonic() - began < 5


def test_watching_reads_again(folder) -> None:
    process = subprocess.Popen(
        command("try", "mine.py", "--suite", "tiny.toml", "--watch"),
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for wanted in ("looking at", "seen again"):
            for line in process.stdout:
                if wanted in line:
                    break
            else:
                pytest.fail(f"it ended before {wanted!r}")
            for line in process.stdout:
                if line.startswith("waiting for"):
                    break
            (folder / "mine.py").write_text(MEASURE.replace("looking at", "seen again"))
    finally:
        process.kill()
        process.wait()


def timed(*words: str, cwd: Path) -> tuple[str, float]:
    """What a command says, and its seconds of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_trial_on_the_smallest_network_is_dominated_by_the_import_of_torch(tmp_path) -> None:
    """With an empty store, as an author's first: at most twice what `import torch` takes, of the processor.

    On an idle machine that is less than three seconds. Both are taken in one moment: beside other work a
    processor's second does less.
    """
    (tmp_path / "mine.py").write_text(MEASURE)
    _, torch_alone = timed(sys.executable, "-c", "import torch", cwd=tmp_path)
    said, took = timed(*command("try", "mine.py"), cwd=tmp_path)
    assert "mini-efficientnet:b0" in said
    assert took < 2 * torch_alone


# -- compare ------------------------------------------------------------------------------------------------


def test_two_measures_side_by_side(run: Run, folder) -> None:
    arguments = ("compare", "path_norm", "baseline_random", "--suite", "tiny.toml")
    document = json.loads(run(*arguments, "--json").stdout)
    assert document["measures"] == ["path_norm", "baseline_random"]
    errors = {one["measure"]: one["sign_error"] for one in document["scores"]}
    # Of three pairs, those in which they differ decide the difference of the sign-errors.
    right = [one["right"] for one in document["pairs"]]
    difference = (right.count("path_norm") - right.count("baseline_random")) / 3
    assert errors["baseline_random"] - errors["path_norm"] == pytest.approx(difference)
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert f"They differ in {len(right)} orderings" in done.stdout
    assert "path_norm has sign-error" in done.stdout


# -- debug --------------------------------------------------------------------------------------------------


def test_debug_shows_traceback_and_output_of_a_run(run: Run, folder) -> None:
    (folder / "mine.py").write_text(BROKEN)
    plain = run("run", "--measure", "mine.py", "--suite", "tiny.toml")
    assert plain.returncode == 1
    assert "return helper(subject)" not in plain.stderr
    shown = run("run", "--measure", "mine.py", "--suite", "tiny.toml", "--debug")
    assert "output of mine on" in shown.stderr
    assert "and 2 more" in shown.stderr, "the same of all three networks, told once"
    assert shown.stderr.count("return 1 / (subject.m - subject.m)") == 1
    assert "before" in shown.stderr


def test_debug_shows_traceback_and_output_of_read_and_check(run: Run, folder) -> None:
    (folder / "mine.py").write_text(BROKEN)
    network = (
        "import torch, genbench\ndef build():\n    torch.manual_seed(0)\n"
        "    x = torch.randn(20, 4)\n"
        "    return genbench.Subject.from_module(torch.nn.Linear(4, 3), data=(x, torch.arange(20) % 3))\n"
    )
    (folder / "net.py").write_text(network)
    read = run("read", "net.py:build", "--measure", "mine.py", "--debug")
    assert "return 1 / (subject.m - subject.m)" in read.stderr
    check = run("check", "mine.py", "--debug")
    assert "return 1 / (subject.m - subject.m)" in check.stderr


# -- a scatter of characters ---------------------------------------------------------------------------------


def test_points_stand_where_they_belong() -> None:
    corners = [Point("a", "x", 0.0, 0.0), Point("b", "x", 1.0, 1.0), Point("c", "y", 0.5, 0.5)]
    lines = terminal_scatter("mine", ScatterPanel("part", "error", corners, []))
    assert lines[0] == "error, part"
    plot = [line.partition("│")[2] for line in lines if "│" in line]
    assert plot[0].rstrip() == " " * 55 + "●"
    assert plot[-1].rstrip() == "●"
    assert sum("○" in line for line in plot) == 1
    assert lines[-1].split() == ["●", "x", "○", "y"]
    assert max(map(len, lines)) < 80


def test_far_readings_stand_on_a_logarithmic_scale() -> None:
    points = [Point(str(n), "", 10.0**n, float(n)) for n in range(5)]
    lines = terminal_scatter("mine", ScatterPanel("", "error", points, []))
    columns = sorted(line.partition("│")[2].index("●") for line in lines if "●" in line)
    gaps = {second - first for first, second in itertools.pairwise(columns)}
    assert gaps <= {13, 14}, "equal steps"
    assert lines[-1].strip() == "mine, logarithmic"


def test_nothing_to_show() -> None:
    assert terminal_scatter("mine", ScatterPanel("", "error", [], [])) == []
