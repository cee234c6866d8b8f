"""95 % intervals and paired tests of sign-errors, for another draw of networks (SPEC.md 6).

Deviations come from a bootstrap of clusters, then networks within them, rescaled to the cluster-robust
standard error; where held-out images are resampled, their deviations are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from genbench.scoring.bootstrap import interval
from genbench.scoring.cluster_variance import ClusterSums, cluster_sums
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.questions import Question
from genbench.scoring.resample_networks import Draws

__all__ = ["Spread", "cluster_intervals", "measured_spread", "pair_p", "paired_p"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LEAST_CLUSTERS = 10
_SMALLEST = 1e-9
"""Standard deviations of sign-errors below it are rounding."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How sign-errors of several measures vary, together, with networks and with images."""

    sums: ClusterSums
    images: Floats
    """(resamples, measures) deviations under resampled held-out images; 0 where there are none."""
    clusters: Integers
    """(measures,) that the pairs touch."""
    freedom: Integers
    """(measures,) these clusters less one per family."""

    @property
    def too_few(self) -> NDArray[np.bool_]:
        """(measures,) whether there are so few clusters that how they vary cannot be told: an only pair of
        clusters never differs from the mean."""
        return self.clusters < _LEAST_CLUSTERS

    @staticmethod
    def together(parts: Sequence[Spread]) -> Spread:
        """Measures of all parts, one after the other."""
        return Spread(
            ClusterSums.together([part.sums for part in parts]),
            np.concatenate([part.images for part in parts], axis=1),
            np.concatenate([part.clusters for part in parts]),
            np.concatenate([part.freedom for part in parts]),
        )


def cluster_intervals(
    question: Question, known: KnownNetworks, entering: Floats, draws: Draws
) -> tuple[Floats, Floats, Spread]:
    """(measures,) lower and upper ends, which always hold the value, and what they come from.

        value + k·(resampled − value) + image deviations,    k = standard error / that of the bootstrap

    k also turns normal percentiles into those of Student's t, for boards of few clusters; of fewer than ten,
    the bootstrap is taken as it is, which is wide.
    """
    values = question.pairs.sign_errors(entering)
    spread = measured_spread(question, known, entering, draws.copies.shape[1])
    resampled = question.pairs.resampled(entering, draws.times, draws.copies, known.cluster)
    wide = np.nanstd(resampled, axis=0)
    right = np.sqrt(spread.sums.variances())
    scale = np.divide(right, wide, out=np.zeros_like(wide), where=wide > _SMALLEST)
    scale[spread.too_few] = 1.0
    scale *= stdtrit(spread.freedom, 0.975) / ndtri(0.975)
    # Images are drawn anew as often as networks are.
    images = spread.images[np.arange(len(resampled)) % len(spread.images)]
    low, high = interval(np.clip(values + scale * (resampled - values) + images, 0.0, 1.0))
    return np.fmin(low, values), np.fmax(high, values), spread


def measured_spread(
    question: Question, known: KnownNetworks, entering: Floats, clusters: int | None = None
) -> Spread:
    """Of (networks, measures) readings or residuals.

    Parameters
    ----------
    clusters : how many there are, where not all of them are among these networks.
    """
    count = int(known.cluster.max()) + 1 if clusters is None else clusters
    images = np.zeros((1, entering.shape[1]))
    truths = question.truths(known.drawn_truths)
    if truths is not None:
        images = question.pairs.with_truths(entering, truths)
        images -= images.mean(axis=0)
    touched = np.union1d(question.pairs.first, question.pairs.second)
    there = len(np.unique(known.cluster[touched]))
    freedom = max(1, there - len(np.unique(known.family[touched])))
    sums = cluster_sums(question.pairs, entering, known.cluster, count)
    each = np.ones(entering.shape[1], dtype=np.int64)
    return Spread(sums, images, there * each, freedom * each)


def paired_p(values: Floats, spread: Spread) -> Floats:
    """(measures, measures) two-sided p-values that two sign-errors are the same, by a paired cluster test.

        t = difference / standard error of the difference,    t ~ Student(clusters − families)

    A thousand resamples cannot give the small p-values that Holm asks of a large board. 1 where there are too
    few clusters of either.
    """
    centred = spread.images - spread.images.mean(axis=0)
    gram = centred.T @ centred / len(centred)
    own = np.diag(gram)
    variance = spread.sums.difference_variances() + np.maximum(own[:, None] + own - 2 * gram, 0.0)
    freedom = np.minimum(spread.freedom[:, None], spread.freedom)
    p = _two_sided(np.abs(values[:, None] - values), variance, freedom)
    return np.where(spread.too_few[:, None] | spread.too_few, 1.0, p)


def pair_p(values: Sequence[Floats], spreads: Sequence[Spread]) -> Floats:
    """(measures,) the same for each measure of one board against the one in its place on another."""
    one, other = spreads
    sums = ClusterSums(one.sums.touching - other.sums.touching, one.sums.between - other.sums.between)
    variance = sums.variances() + np.var(one.images - other.images, axis=0)
    p = _two_sided(np.abs(values[0] - values[1]), variance, np.minimum(one.freedom, other.freedom))
    return np.where(one.too_few | other.too_few, 1.0, p)


def _two_sided(difference: Floats, variance: Floats, freedom: Integers) -> Floats:
    error = np.sqrt(variance)
    same = np.where(difference > _SMALLEST, np.inf, 0.0)
    ratio = np.divide(difference, error, out=same, where=error > _SMALLEST)
    return np.asarray(2 * stdtr(freedom, -ratio))
