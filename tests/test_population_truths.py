"""Truths beside the gap: the calibration error on held-out images, and the gap by severity of a shift."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Run, in_process
from safetensors.torch import load_file

from genbench.engine.store import read_manifest
from genbench.errors import UserError
from genbench.population.calibration import calibration_errors
from genbench.population.plan import plan_population
from genbench.scoring.environments import find_environments, point_sums
from genbench.scoring.network_table import NetworkTable
from genbench.subject import Subject
from genbench.suites import load_suite

SUITE = """
name = "truths"
summary = "a few networks"
kind = "population"

[data]
dataset = "digits"
seed = 0
training_pool = 200
truth = "ece"
corruptions = ["gaussian_noise", "frost"]
severities = [1, 5]
by_severity = true
shifted_images = 100

[train]
architecture = "simplecnn"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
batch_size = 32
stop = "cross_entropy"
stop_cross_entropy = 0.003
max_epochs = 200
depth = 2
width = 4
learning_rate = 0.05

[grid]
train_size = [16, 192]
seed = [0, 1, 2, 3]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("truths")
    (folder / "truths.toml").write_text(SUITE)
    done = in_process(
        "run", "--suite", "truths.toml", "--measure", "params", "--store", "store", "--table", "table.csv",
        "--json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def expected_error(logits: np.ndarray, labels: np.ndarray) -> float:
    """002 Eq. 47 bin by bin."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = odds / odds.sum(axis=1, keepdims=True)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    total = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return float(total)


def test_calibration_errors_are_those_of_the_paper_and_of_the_measure() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (
        torch.randn(3, 400, 5, generator=generator, dtype=torch.float64)
        * torch.tensor([0.1, 1, 9.0])[:, None, None]
    )
    labels = torch.randint(0, 5, (400,), generator=generator)
    found = calibration_errors(logits, labels)
    expected = [expected_error(one.numpy(), labels.numpy()) for one in logits]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert found[0] < found[2]
    from genbench.measures.calibration import ece

    read = [ece(Subject.from_module(torch.nn.Identity(), data=(one, labels))) for one in logits]
    assert found.tolist() == pytest.approx(read, abs=1e-12)


def test_a_network_without_finite_outputs_has_no_calibration_error() -> None:
    logits = torch.zeros(2, 6, 3)
    logits[1, 2, 0] = torch.nan
    found = calibration_errors(logits, torch.zeros(6, dtype=torch.int64))
    # All certainty is spread evenly and class 0, which is always right, is predicted.
    assert float(found[0]) == pytest.approx(2 / 3)
    assert bool(found[1].isnan())


def test_a_suite_may_be_judged_by_calibration(finished) -> None:
    _, document = finished
    assert {row["target"] for row in document["scores"] if row["score"] == "sign_error"} == {"heldout_ece"}
    for found in document["evidence"].values():
        assert 0 <= found["heldout_ece"] <= 1
        assert found["gap"] == pytest.approx(found["train_accuracy"] - found["test_accuracy"])
    # Few examples, overconfident errors: the smaller training set is the worse one for every pair of seeds,
    # which params, over the square root of the training set's size, says too.
    errors = [found["heldout_ece"] for found in document["evidence"].values()]
    assert min(errors[:4]) > max(errors[4:])
    headline = next(m["sign_error"] for m in document["measures"] if m["name"] == "params")
    assert (headline["environments"], headline["available"], headline["value"]) == (1, 1, 0.0)


def test_the_stored_error_is_that_of_the_stored_networks(finished) -> None:
    folder, document = finished
    plan = plan_population(load_suite(str(folder / "truths.toml")))
    cells = {path.parent.name: path.parent for path in (folder / "store/cells").rglob("manifest.json")}
    one = plan.networks[5]
    stack = load_file(cells[one.network.key] / "final.safetensors")
    state = {name: values[one.place["place"]].double() for name, values in stack.items()}
    result = read_manifest(cells[one.network.key])["result"]
    pixels = load_file(cells[plan.heldout_data.key] / "digits.0.safetensors")
    x = (pixels["images"].double() / 255 - result["mean"]) / result["std"]
    for i in range(2):
        x = torch.nn.functional.conv2d(x, state[f"convs.{i}.weight"], state[f"convs.{i}.bias"], padding=1)
        x = torch.nn.functional.max_pool2d(x.relu(), 2)
    logits = x.flatten(1) @ state["head.weight"].T + state["head.bias"]
    expected = expected_error(logits.numpy(), pixels["labels"].numpy())
    assert document["evidence"][one.label]["heldout_ece"] == pytest.approx(expected, abs=1e-5)


def test_every_severity_is_a_truth_of_its_own(finished) -> None:
    folder, document = finished
    with (folder / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, found in zip(rows, document["evidence"].values(), strict=True):
        for severity in (1, 5):
            names = [f"{corruption}.{severity}" for corruption in ("gaussian_noise", "frost")]
            mean = sum(found["shifted_accuracy"][name] for name in names) / 2
            assert float(row[f"gap_ood_severity{severity}"]) == pytest.approx(found["train_accuracy"] - mean)
    assert {row["target"] for row in document["scores"] if row["score"] == "kendall"} == {
        "heldout_ece", "gap", "gap_ood_corrupted", "gap_ood_frost", "gap_ood_gaussian_noise",
        "gap_ood_severity1", "gap_ood_severity5",
    }  # fmt: skip


def test_score_takes_the_truth_as_its_target(run: Run, finished) -> None:
    folder, document = finished
    done = run("score", folder / "table.csv", "--target", "heldout_ece", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["scores"]
    assert sorted(found, key=str) == sorted(document["scores"], key=str)


def test_the_pages_say_what_the_truth_is(finished) -> None:
    page = (finished[0] / "store/reports/truths.html").read_text()
    assert "the expected calibration error on held-out images" in page
    assert "which calibration error is larger" in page


def test_only_a_suite_that_asks_has_other_cells(tmp_path) -> None:
    def keys(text: str) -> dict[str, set[str]]:
        (tmp_path / "one.toml").write_text(text)
        plan = plan_population(load_suite(str(tmp_path / "one.toml")))
        return {"networks": {n.network.key for n in plan.networks}, "truths": {t.key for t in plan.truths}}

    asked = keys(SUITE)
    plain = keys(SUITE.replace('truth = "ece"\n', "").replace("by_severity = true\n", ""))
    named = keys(SUITE.replace('truth = "ece"', 'truth = "gap"'))
    assert plain == named
    assert asked["networks"] == plain["networks"]
    assert not asked["truths"] & plain["truths"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('truth = "ece"', 'truth = "mce"', "data.truth = 'mce', expected one of 'gap', 'ece'"),
        ("by_severity = true", "by_severity = 5", "data.by_severity = 5, expected true or false"),
        (
            'corruptions = ["gaussian_noise", "frost"]\nseverities = [1, 5]\n',
            "",
            "there is no data.corruptions",
        ),
    ],
)
def test_a_wrong_suite_gets_a_sentence(tmp_path, old, new, words) -> None:
    assert old in SUITE
    (tmp_path / "wrong.toml").write_text(SUITE.replace(old, new))
    with pytest.raises(UserError) as problem:
        load_suite(str(tmp_path / "wrong.toml"))
    assert words in str(problem.value)


def test_the_noise_of_a_calibration_error_is_that_of_a_quarter_of_the_images() -> None:
    """The bound behind the filter, tried: 2·exp(−m t²/2) holds for errors of networks with known odds."""
    truth = np.array([0.0, 0.01, 0.2, 0.21])
    common = {
        "hyperparameters": ("h",), "codes": np.array([[0], [0], [1], [1]]), "levels": ((1, 2),),
        "seeds": np.array([0, 1, 0, 1]), "measures": ("c",), "readings": np.arange(4.0)[:, None],
    }  # fmt: skip
    gap = NetworkTable(**common, targets={"gap": truth}, test_size=np.full(4, 250.0))
    error = NetworkTable(**common, targets={"heldout_ece": truth}, test_size=np.full(4, 1000.0))
    found = [point_sums(one, "", True, find_environments(one)) for one in (gap, error)]
    np.testing.assert_allclose(found[0].weight, found[1].weight)
    assert float(found[0].weight[0]) > 0
    draws = np.random.default_rng(0)
    size, trials, t = 200, 2000, 0.15
    p = draws.uniform(0.5, 1, (trials, size))
    right = draws.random((trials, size)) < p
    bins = np.ceil(p * 15).astype(int)
    errors = sum(np.abs(((right - p) * (bins == b)).sum(axis=1)) for b in range(16)) / size
    assert np.mean(np.abs(errors - errors.mean()) >= t) <= 2 * np.exp(-size * t**2 / 2)
