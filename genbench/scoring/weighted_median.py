"""Medians of values that count several times, for many resamples at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["weighted_medians"]

# Shares of the sorted spreads at which bins end: fine around the middle, where resampled medians fall.
_EDGES = np.unique(np.concatenate([np.linspace(0, 1, 101), np.linspace(0.35, 0.65, 601)]))


def weighted_medians(spread: NDArray[np.float64], weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """(resamples,) medians of spreads that count as often as their weights say.

    Sorted spreads are put in bins of at most a two-thousandth of them around the median, so that one sparse
    product adds up the weights of all resamples. With fewer pairs than bins each has its own and the median
    is exact; else it is that of the bin.

    Parameters
    ----------
    spread : (pairs,)
    weights : (pairs, resamples)
    """
    pairs, resamples = weights.shape
    if pairs == 0:
        return np.full(resamples, np.nan)
    edges = (
        np.unique(np.round(_EDGES * pairs).astype(np.int64)) if pairs > len(_EDGES) else np.arange(pairs + 1)
    )
    order = np.argsort(spread)
    bins = sparse.csr_matrix((np.ones(pairs, dtype=np.float32), order, edges), shape=(len(edges) - 1, pairs))
    middle = np.add.reduceat(spread[order], edges[:-1]) / np.diff(edges)
    below = np.cumsum((bins @ weights).astype(np.float64), axis=0)
    total = below[-1]
    # The middle one of an odd number, the two middle ones of an even number.
    lower = np.argmax(below > np.ceil(total / 2) - 1, axis=0)
    upper = np.argmax(below > np.floor(total / 2), axis=0)
    return np.where(total > 0, (middle[lower] + middle[upper]) / 2, np.nan)
