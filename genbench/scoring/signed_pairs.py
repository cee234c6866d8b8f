"""Weighed pairs of networks with the signs of their truths: what every question of a board is made of.

With weights w of pairs (i, j) that sum to 1 and slices t of the truth d,

    SE(C) = ½ (1 − Σ w_ij · mean over t of sgn(d_i − d_j) · sgn(C_i − C_j))

is a sign-error whatever the weights are: uniform over the pairs of a family (004 Eq. 7), the mean over
environments (001), or over pairs of equal size. Under resampled networks it is a ratio of two sums over
pairs, so that all measures and resamples come from one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.scoring.pairs import pairs_within

__all__ = ["SignedPairs", "pairs_of_groups"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CHUNK = 2**21
"""Numbers in a block of (resamples, pairs)."""
_DIGITS = 12
"""Of a sum of weights."""


@dataclass(frozen=True, eq=False)
class SignedPairs:
    """Pairs of networks, how much each weighs, and which of the two truths is larger."""

    first: Integers
    second: Integers
    """(pairs,) places of networks."""
    weight: Floats
    """(pairs,) not negative, the sum is 1."""
    larger: Floats
    """(slices, pairs) sgn(d_first − d_second)."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def signed(self) -> Floats:
        """(pairs,) weight times the mean sign over slices."""
        return np.asarray(self.weight * self.larger.mean(axis=0))

    def claims(self, readings: Floats) -> NDArray[np.int8]:
        """(pairs, measures) sgn(C_first − C_second) of (networks, measures) readings."""
        first, second = readings[self.first], readings[self.second]
        return (first > second).astype(np.int8) - (first < second).astype(np.int8)

    def sign_errors(self, readings: Floats) -> Floats:
        """(measures,) of (networks, measures) readings without gaps."""
        # What is left of 0, ½ or 1 when weights were added up is rounding, and no sign-error is below 0.
        errors = np.round(0.5 * (1 - self.signed @ self.claims(readings)), _DIGITS)
        return np.asarray(np.clip(errors, 0.0, 1.0) + 0.0)

    def resampled(
        self,
        readings: Floats,
        times: NDArray[np.float32],
        copies: NDArray[np.float32],
        cluster: Integers,
    ) -> Floats:
        """(resamples, measures) sign-errors when networks are drawn anew; NaN where no pair was drawn.

        A pair counts the product of the multiplicities of its networks. In a cluster that was drawn k times
        only networks of one copy meet, which leaves one k-th of those products.

        Parameters
        ----------
        times : (resamples, networks) how often each was drawn.
        copies : (resamples, clusters) how often each cluster was drawn.
        cluster : (networks,) number of each network's cluster.
        """
        found = np.full((len(times), readings.shape[1]), np.nan)
        claims = self.claims(readings).astype(np.float64)
        same = cluster[self.first] == cluster[self.second]
        own = cluster[self.first[same]]
        # Double precision: the last bits of sums differ between processors, and must be far from those shown.
        signed = self.signed
        step = max(1, _CHUNK // max(len(self), 1))
        for start in range(0, len(times), step):
            part = slice(start, start + step)
            both = (times[part][:, self.first] * times[part][:, self.second]).astype(np.float64)
            both[:, same] /= np.maximum(copies[part][:, own], 1)
            total = both @ self.weight
            agreement = (both * signed) @ claims
            ratio = np.divide(
                agreement, total[:, None], out=np.full_like(agreement, np.nan), where=total[:, None] > 0
            )
            found[part] = 0.5 * (1 - ratio)
        return np.asarray(np.clip(found, 0.0, 1.0))

    def with_truths(self, readings: Floats, truths: Floats) -> Floats:
        """(resamples, measures) sign-errors against resampled truths, (slices, resamples, networks)."""
        claims = self.weight[:, None] * self.claims(readings)
        found = np.zeros((truths.shape[1], readings.shape[1]))
        step = max(1, _CHUNK // max(len(self), 1))
        for start in range(0, len(found), step):
            some = truths[:, start : start + step]
            larger = np.sign(some[:, :, self.first] - some[:, :, self.second]).mean(axis=0)
            found[start : start + step] = 0.5 * (1 - larger @ claims)
        return found


def pairs_of_groups(groups: ArrayLike, families: ArrayLike, truths: Floats) -> SignedPairs:
    """All pairs of networks in the same group: uniform within a family, families weighing alike.

    Parameters
    ----------
    groups : (networks,) numbers; a group lies within one family.
    truths : (slices, networks)
    """
    family = np.asarray(families)
    first, second = pairs_within(groups)
    count = np.bincount(family[first], minlength=int(family.max(initial=0)) + 1)
    present = max(1, int((count > 0).sum()))
    weight = 1.0 / (present * np.maximum(count, 1)[family[first]])
    return SignedPairs(first, second, weight, np.sign(truths[:, first] - truths[:, second]))
