"""Sign-error against the golden cube, by hand, and as properties."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genbench.scoring import sign_error

GOLDEN = json.loads((Path(__file__).parent / "golden" / "scoring" / "cube_sign_error.json").read_text())

CASES = [
    (piece, statistic, name)
    for piece, statistics in GOLDEN["eq7"].items()
    for statistic, scores in statistics.items()
    for name in scores
]


@pytest.mark.parametrize(("piece", "statistic", "name"), CASES)
def test_agrees_with_the_golden_cube(piece, statistic, name) -> None:
    truth = GOLDEN["eq6"][piece][statistic]["mean"]
    expected = GOLDEN["eq7"][piece][statistic][name]
    assert sign_error(GOLDEN["readings"][name], truth) == pytest.approx(expected, abs=1e-9)


def test_by_hand() -> None:
    # Pairs (1,2) right, (1,3) tie, (2,3) wrong.
    assert sign_error([0, 1, 0], [1, 2, 3]) == pytest.approx((0 + 0.5 + 1) / 3)


values = st.lists(st.integers(-50, 50), min_size=2, max_size=12)


@given(st.data(), values)
def test_increasing_transforms_and_orders_of_rows_change_nothing(data, c) -> None:
    d = data.draw(st.lists(st.integers(-50, 50), min_size=len(c), max_size=len(c)))
    order = data.draw(st.permutations(range(len(c))))
    reference = float(sign_error(c, d))
    assert float(sign_error(np.exp(np.array(c) / 10), d)) == pytest.approx(reference)
    assert float(sign_error(np.array(c)[order], np.array(d)[order])) == pytest.approx(reference)
    assert 0 <= reference <= 1


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_the_opposite_measure_has_the_opposite_score(c, d) -> None:
    assert float(sign_error(c, d) + sign_error(-np.array(c), d)) == pytest.approx(1)
    # An independent count.
    wrong = sum((c[i] < c[j]) != (d[i] < d[j]) for i, j in itertools.combinations(range(8), 2))
    assert float(sign_error(c, d)) == pytest.approx(wrong / 28)


def test_leading_axes_give_one_score_each() -> None:
    truth = np.random.default_rng(0).normal(size=(4, 5, 6))
    scores = sign_error(np.arange(6), truth)
    assert scores.shape == (4, 5)
    assert scores[2, 3] == pytest.approx(float(sign_error(np.arange(6), truth[2, 3])))


def test_scoring_imports_no_torch() -> None:
    code = "import genbench.scoring, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
