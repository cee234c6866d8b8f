"""Standard errors of sign-errors over pairs of networks that come in clusters.

Two pairs are independent only if they share no cluster. With e_p = w_p·(g_p − ḡ), g_p the agreement of pair p
with the truth and ḡ its weighed mean, ψ_c the sum of e over all pairs that touch cluster c, and D_cc' the sum
over the pairs of two clusters c ≠ c',

    Var ḡ = Σ_c ψ_c² − Σ_{c<c'} D_cc'²,    not below ½ Σ_c ψ_c²

is the dyadic cluster-robust estimate (Fafchamps and Gubert 2007; Aronow, Samii and Assenova 2015); the floor
is what pairs without anything in common would give. ψ_c is divided by the share of the weight that does not
touch c, as in a jackknife, since ḡ was found with the pairs of c among the others.

A bootstrap of pairs alone is too wide: drawing both clusters of a pair, and networks within them, multiplies
the variance of what is not shared by up to eight. So its deviations are rescaled to this standard error
(as Rao and Wu 1988 do for samples in stages).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from genbench.scoring.signed_pairs import SignedPairs

__all__ = ["ClusterSums", "cluster_sums"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST_LEVERAGE = 0.5


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums of e over the pairs that touch a cluster or two, of several measures."""

    touching: Floats
    """(clusters, measures) ψ."""
    between: Any
    """(clusters², measures) D, sparse."""

    def variances(self) -> Floats:
        """(measures,) of sign-errors."""
        whole = np.square(self.touching).sum(axis=0)
        shared = np.asarray(self.between.multiply(self.between).sum(axis=0)).reshape(-1)
        return _floored(whole, shared)

    def difference_variances(self) -> Floats:
        """(measures, measures) of the differences of sign-errors."""
        whole = self.touching.T @ self.touching
        shared = np.asarray((self.between.T @ self.between).toarray())
        return _floored(_of_differences(whole), _of_differences(shared))

    @staticmethod
    def together(parts: Sequence[ClusterSums]) -> ClusterSums:
        """Measures of all parts, one after the other; the clusters must be the same."""
        return ClusterSums(
            np.concatenate([part.touching for part in parts], axis=1),
            sparse.hstack([part.between for part in parts], format="csc"),
        )


def _floored(whole: Floats, shared: Floats) -> Floats:
    # A sign-error is half of 1 − ḡ.
    return np.asarray(0.25 * np.maximum(whole - shared, 0.5 * whole))


def _of_differences(gram: Floats) -> Floats:
    own = np.diag(gram)
    return np.asarray(np.maximum(own[:, None] + own - 2 * gram, 0.0))


def cluster_sums(pairs: SignedPairs, entering: Floats, cluster: Integers, clusters: int) -> ClusterSums:
    """Of (networks, measures) readings.

    Parameters
    ----------
    cluster : (networks,) numbers below `clusters`.
    """
    agreement = pairs.larger.mean(axis=0)[:, None] * pairs.claims(entering)
    e = pairs.weight[:, None] * (agreement - pairs.weight @ agreement)
    first, second = cluster[pairs.first], cluster[pairs.second]
    apart = first != second
    ones, places = np.ones(len(pairs)), np.arange(len(pairs))
    touching = sparse.csr_matrix((ones, (first, places)), shape=(clusters, len(pairs))) + sparse.csr_matrix(
        (ones[apart], (second[apart], places[apart])), shape=(clusters, len(pairs))
    )
    # Only dyads that occur, or a table of many clusters would be a matrix of millions of empty rows.
    low, high = np.minimum(first, second)[apart], np.maximum(first, second)[apart]
    dyads, number = np.unique(low * clusters + high, return_inverse=True)
    sums = (
        sparse.csr_matrix((ones[apart], (number.reshape(-1), places[apart])), shape=(len(dyads), len(pairs)))
        @ e
    )
    rows, columns = np.repeat(dyads, e.shape[1]), np.tile(np.arange(e.shape[1]), len(dyads))
    between = sparse.csc_matrix((sums.reshape(-1), (rows, columns)), shape=(clusters**2, e.shape[1]))
    left = 1 - np.minimum(touching @ pairs.weight, _MOST_LEVERAGE)
    return ClusterSums(np.asarray(touching @ e) / left[:, None], between)
