"""`genbench read`: measures on a network of the user's own."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from test_cli import assert_one_sentence

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


def test_a_table_for_people(run, network) -> None:
    result = run("read", "./mynet.py:build", "--measure", "param_norm")
    assert result.returncode == 0, result.stderr
    assert "param_norm\t" in result.stdout
    assert "building" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mynet.py:nothing", "-m", "params"], "it returned int; return genbench.Subject.from_module"),
        (["mynet.py:fails", "-m", "params"], "ValueError: the checkpoint is not there"),
        (["mynet.py:dies", "-m", "params"], "exit code 3"),
        (["mynet.py:absent", "-m", "params"], "it defines no function 'absent'"),
        (["mynet.py", "-m", "params"], "write ./mynet.py:build"),
        (["other.py:build", "-m", "params"], "there is no file other.py"),
        (["mynet.py:build"], "say what to read"),
        (["mynet.py:build", "-m", "parms"], "did you mean 'params'"),
    ],
)
def test_wrong_words_get_one_sentence(run, network, arguments, words) -> None:
    assert_one_sentence(run("read", *arguments), words)
