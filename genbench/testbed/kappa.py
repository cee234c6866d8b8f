"""Kappa of every class of a cell (004 Eq. 2), in the paper's reading and in that of its authors' code."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["THRESHOLD", "cohen_kappa", "conflict_kappa", "table_kappa"]

THRESHOLD = 0.3
"""Probability from which a class counts as recognised; the paper gives none."""


def table_kappa(a: ArrayLike, b: ArrayLike, c: ArrayLike, d: ArrayLike) -> NDArray[np.float64]:
    """Kappa of 2 × 2 tables of counts, (p1 − p2)/(1 − p2) (Eq. 2).

        p1 = (a + d)/N        p2 = ((a + b)(a + c) + (c + d)(b + d))/N²

    A zero denominator gives 0: only agreement by chance is possible in such a table.

    Parameters
    ----------
    a, b, c, d : (...) counts of both, only the first, only the second, neither.
    """
    a, b, c, d = (np.asarray(count, dtype=np.float64) for count in (a, b, c, d))
    n = a + b + c + d
    # Both sides times N²: counts stay whole numbers, so the denominator is zero exactly where it should be.
    chance = (a + b) * (a + c) + (c + d) * (b + d)
    observed, possible = (a + d) * n, n * n
    denominator = possible - chance
    return np.divide(observed - chance, denominator, out=np.zeros_like(denominator), where=denominator != 0)


def conflict_kappa(probabilities: ArrayLike, threshold: float = THRESHOLD) -> NDArray[np.float64]:
    """Kappa between "it is class i" and "it is another class" (Eq. 2, `conflict`): low is good.

    A class is recognised where its probability reaches the threshold: h_i for class i, h_not-i for any other.
    Over the samples of the cell, a = both (a conflict), b = only h_i, c = only h_not-i, d = neither.

    Parameters
    ----------
    probabilities : (..., samples, classes) softmax outputs.

    Returns
    -------
    (..., classes) kappa_i.
    """
    own = np.asarray(probabilities) >= threshold
    # Another class is recognised if more are than class i itself.
    other = own.sum(axis=-1, keepdims=True) - own > 0
    return table_kappa(
        np.sum(own & other, axis=-2),
        np.sum(own & ~other, axis=-2),
        np.sum(~own & other, axis=-2),
        np.sum(~own & ~other, axis=-2),
    )


def cohen_kappa(truth: ArrayLike, prediction: ArrayLike, classes: int) -> NDArray[np.float64]:
    """1 − Cohen's kappa of truth against prediction, one class against the rest (`cohen`): low is good.

    What the authors' released code computes. A class that is neither present nor predicted has Cohen's
    kappa 0, and so 1 here.

    Parameters
    ----------
    truth, prediction : (samples,) class numbers below `classes`.

    Returns
    -------
    (classes,) 1 − kappa_i.
    """
    y, p = np.asarray(truth, dtype=np.int64), np.asarray(prediction, dtype=np.int64)
    both = np.bincount(y[y == p], minlength=classes)
    missed = np.bincount(y, minlength=classes) - both
    false = np.bincount(p, minlength=classes) - both
    return 1 - table_kappa(both, missed, false, len(y) - both - missed - false)
