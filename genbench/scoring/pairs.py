"""Pairs of runs or combos, as arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["number_rows", "pair_weights", "pairs_within", "ranges"]


def number_rows(codes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First place and number of every distinct row of small whole numbers, in increasing order of rows.

    As `np.unique` over the first axis, but on one whole number per row, which is much faster.
    """
    rows = np.asarray(codes, dtype=np.int64)
    label = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        # Numbering anew after each column keeps labels below the number of rows, so nothing overflows.
        _, label = np.unique(label * (column.max(initial=0) + 1) + column, return_inverse=True)
    _, first = np.unique(label, return_index=True)
    return first, label.reshape(-1)


def ranges(starts: ArrayLike, lengths: ArrayLike) -> NDArray[np.int64]:
    """The ranges start … start + length − 1, one after the other."""
    first, count = np.asarray(starts, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(count)[:-1]]) if len(count) else count
    return np.asarray(np.arange(count.sum()) + np.repeat(first - before, count))


def pairs_within(groups: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All unordered pairs of places that carry the same group number, as (first, second).

    Pairs of one group follow each other, groups in increasing order.
    """
    labels = np.asarray(groups)
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    # How many members of the same group come after each place.
    later = np.searchsorted(ordered, ordered, side="right") - np.arange(len(ordered)) - 1
    first = np.repeat(np.arange(len(ordered)), later)
    second = ranges(np.arange(len(ordered)) + 1, later)
    return order[first], order[second]


def pair_weights(difference: ArrayLike, images: ArrayLike) -> NDArray[np.float64]:
    """kappa of pairs of truths (001 Sec. 5): 0 where the difference D may be noise of the m held-out images.

        chi(D) = max(0, 1 − 2·exp(−2m(D/2)²))²        kappa = max(0, chi − ½)

    The paper prints it without the clip of 1 − 2·exp(…) at 0, which gives equal gaps a weight of ½.
    """
    m = np.asarray(images)
    chi = np.maximum(0.0, 1 - 2 * np.exp(-2 * m * np.square(np.asarray(difference) / 2))) ** 2
    return np.asarray(np.maximum(0.0, chi - 0.5))
