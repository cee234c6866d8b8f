"""Kappa per class against the golden values, scikit-learn and a loop over samples."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from genbench.testbed.kappa import cohen_kappa, conflict_kappa, table_kappa

FOLDER = Path(__file__).parent / "golden" / "scoring"
GOLDEN = json.loads((FOLDER / "golden_kappa.json").read_text())
INPUT = json.loads((FOLDER / "kappa_input.json").read_text())

seeds = st.integers(0, 2**32 - 1)


def labels_of(confusion: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Truth and prediction of every sample of a confusion matrix (rows are the truth)."""
    counts = np.array(confusion)
    truth, prediction = np.indices(counts.shape)
    return np.repeat(truth.ravel(), counts.ravel()), np.repeat(prediction.ravel(), counts.ravel())


@pytest.mark.parametrize("name", INPUT["confusion"])
def test_cohen_agrees_with_the_golden_values(name) -> None:
    confusion = INPUT["confusion"][name]
    found = cohen_kappa(*labels_of(confusion), classes=len(confusion))
    np.testing.assert_allclose(found, GOLDEN["code_variant"][name]["one_minus_kappa"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("table", GOLDEN["eq2_tables"], ids=lambda table: str(table["abcd"]))
def test_tables_agree_with_the_golden_values(table) -> None:
    assert float(table_kappa(*table["abcd"])) == pytest.approx(table["kappa"], abs=1e-9)


def test_conflict_agrees_with_the_golden_values() -> None:
    found = conflict_kappa(INPUT["probs"]["P"], INPUT["probs"]["threshold"])
    np.testing.assert_allclose(found, GOLDEN["eq2_probs"]["kappa"], rtol=0, atol=1e-9)
    # The default threshold is that of the golden file.
    np.testing.assert_array_equal(found, conflict_kappa(INPUT["probs"]["P"]))


@settings(deadline=None)
@given(seeds, st.integers(2, 6), st.integers(1, 60))
def test_cohen_agrees_with_scikit_learn(seed, classes, samples) -> None:
    generator = np.random.default_rng(seed)
    truth, prediction = generator.integers(0, classes, size=(2, samples))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn divides by zero where all samples are alike
        expected = [
            1 - cohen_kappa_score(truth == i, prediction == i, labels=[False, True]) for i in range(classes)
        ]
    # Undefined there, by definition Cohen's kappa 0 here.
    expected = np.nan_to_num(expected, nan=1.0)
    np.testing.assert_allclose(cohen_kappa(truth, prediction, classes), expected, rtol=0, atol=1e-9)


@settings(deadline=None)
@given(seeds, st.integers(2, 6), st.integers(1, 40), st.sampled_from([0.1, 0.3, 0.6]))
def test_conflict_agrees_with_scikit_learn_on_the_two_judgements(seed, classes, samples, threshold) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=samples)
    expected = []
    for i in range(classes):
        own = [row[i] >= threshold for row in p]
        other = [max(x for j, x in enumerate(row) if j != i) >= threshold for row in p]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected.append(cohen_kappa_score(own, other, labels=[False, True]))
    found = conflict_kappa(p, threshold)
    np.testing.assert_allclose(found, np.nan_to_num(expected, nan=0.0), rtol=0, atol=1e-9)


def test_zero_denominators_give_zero() -> None:
    # Nobody recognises anything; everybody recognises the first class only.
    assert conflict_kappa(np.full((5, 4), 0.25)).tolist() == [0, 0, 0, 0]
    assert conflict_kappa([[1.0, 0.0]] * 5).tolist() == [0, 0]
    # Class 2 is neither present nor predicted.
    assert cohen_kappa([0, 1], [0, 1], 3).tolist() == [0, 0, 1]


def test_leading_axes_give_one_row_each() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 5, 30))
    found = conflict_kappa(p)
    assert found.shape == (2, 5, 3)
    np.testing.assert_array_equal(found[1, 4], conflict_kappa(p[1, 4]))


def test_a_label_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        cohen_kappa([0, 1], [0, 3], 2)
