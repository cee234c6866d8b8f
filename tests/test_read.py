"""`genbench read`: measures on a network of the user's own."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from test_cli import assert_one_sentence

from genbench.display.names import reading_note
from genbench.engine.cells import Outcome, Status

NETWORK = """
import torch
import genbench

def build():
    print("building")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.arange(12.0).view(3, 4))
    x = torch.randn(50, 4)
    return genbench.Subject.from_module(model, data=(x, model(x).argmax(1)))

def spoilt():
    model = torch.nn.Linear(4, 3)
    model.weight.data[0, 0] = float("nan")
    return genbench.Subject.from_module(model, data=(torch.randn(50, 4), torch.zeros(50)))

def nothing():
    return 5

def fails():
    raise ValueError("the checkpoint is not there")

def dies():
    import os
    os._exit(3)
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "mynet.py").write_text(NETWORK)


def test_values_and_statuses(run, tmp_path, network) -> None:
    (tmp_path / "bad.py").write_text(
        "import genbench\n@genbench.measure\ndef bad(s):\n    'B.'\n    return 'x'\n"
    )
    wanted = ["param_norm", "log_prod_of_spec", "path_norm", "fro_dist", "./bad.py"]
    chosen = [option for name in wanted for option in ("--measure", name)]
    result = run("read", "mynet.py:build", *chosen, "--json")
    assert result.returncode == 1, result.stderr
    rows = {row["measure"]: row for row in json.loads(result.stdout)}
    weights = np.arange(12.0).reshape(3, 4)
    squares = np.square(weights).sum()
    largest = np.linalg.svd(weights, compute_uv=False)[0]
    assert rows["param_norm"]["value"] == pytest.approx(math.sqrt(squares / 50))
    assert rows["path_norm"]["value"] == pytest.approx(
        math.sqrt(squares / 50)
    )  # one layer: every weight is a path
    assert rows["log_prod_of_spec"]["value"] == pytest.approx(math.log(largest) - math.log(50) / 2)
    assert rows["fro_dist"]["status"] == "not_applicable"
    assert "initial_weights" in rows["fro_dist"]["reason"]
    assert rows["bad"]["status"] == "invalid"


def test_what_was_read_is_kept_and_belongs_to_the_network(run, tmp_path, network) -> None:
    def read(*names: str) -> dict[str, tuple[bool, float]]:
        chosen = [option for name in names for option in ("--measure", name)]
        result = run("read", "mynet.py:build", *chosen, "--json", "--jobs", "2")
        assert result.returncode == 0, result.stderr
        return {row["measure"]: (row["stored"], row["value"]) for row in json.loads(result.stdout)}

    first = read("param_norm", "path_norm")
    assert [stored for stored, _ in first.values()] == [False, False]
    more = read("param_norm", "path_norm", "params")
    assert {name: stored for name, (stored, _) in more.items()} == {
        "param_norm": True, "path_norm": True, "params": False,
    }  # fmt: skip
    assert all(more[name][1] == value for name, (_, value) in first.items())
    # Other weights, the same file name: another network.
    (tmp_path / "mynet.py").write_text(NETWORK.replace(".view(3, 4)", ".view(3, 4) * 2"))
    doubled = read("param_norm")["param_norm"]
    assert doubled == (False, pytest.approx(2 * first["param_norm"][1]))


def test_readings_are_told_as_they_end(run, network) -> None:
    names = ("params", "param_norm", "path_norm", "log_prod_of_spec")
    result = run("read", "mynet.py:build", *(option for name in names for option in ("-m", name)))
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if "/4 " in line]
    assert [line.split()[0] for line in told] == ["1/4", "2/4", "3/4", "4/4"]
    assert any("param_norm: ok 3.1" in line for line in told)


def test_a_table_for_people(run, network) -> None:
    result = run("read", "./mynet.py:build", "--measure", "param_norm")
    assert result.returncode == 0, result.stderr
    assert "param_norm\t" in result.stdout
    assert "building" not in result.stdout


UNSURE = """
import genbench

@genbench.measure
def unsure(subject):
    "A curvature, say."
    return genbench.Estimate(-2.1, standard_error=2.7)

@genbench.measure
def sure(subject):
    "Another."
    return genbench.Estimate(-2.1, standard_error=1.0)
"""


def test_a_reading_that_its_error_cannot_tell_from_0_says_so(run, tmp_path, network) -> None:
    (tmp_path / "unsure.py").write_text(UNSURE)
    shown = run("read", "mynet.py:build", "-m", "./unsure.py", "-m", "param_norm").stdout
    lines = {line.split("\t")[0]: line for line in shown.splitlines()}
    assert "not told from 0: its standard error is 2.7" in lines["unsure"]
    assert "\tok\t" in lines["unsure"]
    assert "not told from 0" not in lines["sure"] + lines["param_norm"]


@pytest.mark.parametrize(
    ("value", "error", "note"),
    [(1.0, 0.5, "not told"), (1.0, 0.4, ""), (0.0, 0.0, ""), (0.0, 0.1, "not told"), (3.0, None, "")],
)
def test_which_readings_are_not_told_from_0(value, error, note) -> None:
    outcome = Outcome(Status.OK, result={"value": value, "detail": {"standard_error": error}})
    assert reading_note(outcome).startswith(note)
    assert bool(reading_note(outcome)) == bool(note)
    assert reading_note(Outcome(Status.NOT_APPLICABLE, "one class")) == "one class"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mynet.py:nothing", "-m", "params"], "it returned int; return genbench.Subject.from_module"),
        (["mynet.py:fails", "-m", "params"], "ValueError: the checkpoint is not there"),
        (["mynet.py:dies", "-m", "params"], "exit code 3"),
        (["mynet.py:spoilt", "-m", "params"], "the weights are not finite"),
        (["mynet.py:absent", "-m", "params"], "it defines no function 'absent'"),
        (["mynet.py", "-m", "params"], "write ./mynet.py:build"),
        (["other.py:build", "-m", "params"], "there is no file other.py"),
        (["mynet.py:build"], "say what to read"),
        (["mynet.py:build", "-m", "parms"], "did you mean 'params'"),
    ],
)
def test_wrong_words_get_one_sentence(run, network, arguments, words) -> None:
    assert_one_sentence(run("read", *arguments), words)
