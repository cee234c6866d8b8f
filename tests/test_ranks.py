"""Ranks and Student's t without scipy.stats, which is what they are compared with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri, stdtr, stdtrit
from scipy.stats import norm, rankdata, t

from genbench.scoring.ranks import column_ranks


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
@pytest.mark.parametrize("rows", [1, 2, 7, 50])
def test_ranks_are_those_of_scipy_to_the_bit(rows: int, levels: int) -> None:
    values = np.random.default_rng(0).integers(0, levels, (rows, 4)).astype(np.float64)
    values[0, 0] = np.inf
    assert np.array_equal(column_ranks(values), rankdata(values, axis=0))


def test_percentiles_are_those_of_scipy_s_distributions_to_the_bit() -> None:
    generator = np.random.default_rng(0)
    freedom, ratio = generator.integers(1, 300, 500), np.abs(generator.standard_t(3, 500))
    assert np.array_equal(stdtrit(freedom, 0.975), t.ppf(0.975, freedom))
    assert np.array_equal(stdtr(freedom, -ratio), t.sf(ratio, freedom))
    assert ndtri(0.975) == norm.ppf(0.975)
