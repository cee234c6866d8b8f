"""Intervals by bootstrap over seeds within combos.

A resample draws, in every combo of k runs, k runs with replacement: every run gets a *multiplicity*. A pair
of runs then counts the product of their multiplicities, and a run is never paired with its own copy, which
would be a tie that no experiment can show. So scores are computed on weights and no table is ever copied.

The interval is that of percentiles. A maximum or a minimum over environments, and a plug-in estimate of
information, are biased under resampling: their percentiles may all lie to one side of the value. Such an
interval is extended to the value (`scoring.tidy`): it can only cover more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.scoring.network_table import NetworkTable

__all__ = ["RESAMPLES", "affordable", "interval", "multiplicities"]

RESAMPLES = 1000
_LEAST = 100
_BUDGET = 2e10 / 24
"""Elementary operations that the interval of one measure may take: for the 24 of 001 some five seconds on one
core."""

_PATIENCE = 20
"""How many budgets the least number of resamples may take."""


def multiplicities(networks: NetworkTable, resamples: int, seed: int = 0) -> NDArray[np.float32]:
    """(resamples, rows) how often each run is drawn; the sum over a combo is its number of runs."""
    order = np.argsort(networks.combo, kind="stable")
    size = networks.runs[networks.combo[order]]
    start = np.repeat(np.cumsum(networks.runs) - networks.runs, networks.runs)
    generator = np.random.default_rng(seed)
    drawn = order[start + (generator.random((resamples, len(networks))) * size).astype(np.int64)]
    flat = drawn + np.arange(resamples)[:, None] * len(networks)
    counts = np.bincount(flat.reshape(-1), minlength=resamples * len(networks))
    return counts.reshape(resamples, len(networks)).astype(np.float32)


def affordable(resamples: int, operations: float) -> int:
    """Fewer resamples where one takes many operations, not below 100 of those asked for; none at all where
    100 would take minutes.

    It depends on the rows of the table and not on how many measures it has: a measure's interval is the same
    whatever stands beside it.

    Parameters
    ----------
    operations : of one resample of one measure.
    """
    least = min(resamples, _LEAST)
    if least * operations > _PATIENCE * _BUDGET:
        return 0
    return min(resamples, max(least, int(_BUDGET / max(operations, 1.0))))


def interval(values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 2.5th and 97.5th percentile over the first axis, resamples without a value left out."""
    drawn = np.asarray(values, dtype=np.float64)
    if len(drawn) == 0:
        empty = np.full(drawn.shape[1:], np.nan)
        return empty, empty
    return quantile(drawn, 0.025), quantile(drawn, 0.975)


def quantile(values: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Quantile over the first axis, linear between ranks, NaN left out (`np.nanquantile`, but array code)."""
    return ordered_quantile(np.sort(values, axis=0), share)


def ordered_quantile(ordered: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """`quantile` of values already sorted along the first axis, NaN last; NaN of nothing."""
    if len(ordered) == 0:
        return np.full(ordered.shape[1:], np.nan)
    present = len(ordered) - np.isnan(ordered).sum(axis=0, keepdims=True)
    rank = share * np.maximum(present - 1, 0)
    below, above = np.floor(rank).astype(np.int64), np.ceil(rank).astype(np.int64)
    low = np.take_along_axis(ordered, below, axis=0)
    high = np.take_along_axis(ordered, above, axis=0)
    return np.asarray((low + (rank - below) * (high - low))[0])
