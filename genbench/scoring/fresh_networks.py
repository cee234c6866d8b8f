"""Published networks against fresh ones: does a measure order both equally well?

Networks that differ in their seed alone are exchangeable, so a measure that reads networks, and not a table
of those that were published, does as well on fresh ones but for chance. With SE_p and SE_f its sign-errors
over all pairs of published and of fresh networks of a family,

    T = SE_f − SE_p,    p = (1 + #{T_b ≥ T}) / (1 + B)

where T_b is the same after who is fresh was drawn anew among networks that were trained alike. The test is
exact, whatever the measure and however few networks there are. A network without a reading ties with all
others, so that refusing to read fresh ones helps nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.signed_pairs import pairs_of_groups

__all__ = ["LEVEL", "FreshScore", "judge_fresh"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEVEL = 0.01
"""An honest measure fails one challenge in a hundred; then it is challenged again."""
_DRAWS = 2000


@dataclass(frozen=True)
class FreshScore:
    """Sign-errors of one measure."""

    published: float
    fresh: float
    allowed: float
    """The largest sign-error on the fresh networks that chance explains at `LEVEL`."""
    p: float

    @property
    def suspect(self) -> bool:
        """Whether it does worse on fresh networks than chance explains."""
        return self.p <= LEVEL


def judge_fresh(
    readings: Floats,
    truths: Floats,
    family: Integers,
    alike: Integers,
    fresh: NDArray[np.bool_],
    *,
    seed: int = 0,
    draws: int = _DRAWS,
) -> FreshScore:
    """Compare published and fresh networks.

    Parameters
    ----------
    readings : (networks,) higher means worse; NaN where there is none.
    truths : (slices, networks) higher is worse.
    family : (networks,) numbers; pairs are taken within one.
    alike : (networks,) the same number for networks that differ in their seed alone.
    fresh : (networks,)
    """
    generator = np.random.default_rng(seed)
    drawn = np.repeat(fresh[None], draws + 1, axis=0)
    for group in np.unique(alike):
        places = np.flatnonzero(alike == group)
        drawn[1:, places] = generator.permuted(drawn[1:, places], axis=1)
    pairs = pairs_of_groups(family, family, truths)
    count = len(readings)
    none_twice, alone = np.ones((draws + 1, count), dtype=np.float32), np.arange(count)

    def sign_errors(chosen: NDArray[np.bool_]) -> Floats:
        found = pairs.resampled(readings[:, None], chosen.astype(np.float32), none_twice, alone)[:, 0]
        return np.where(np.isnan(found), 0.5, found)  # no pair says nothing

    published, unseen = sign_errors(~drawn), sign_errors(drawn)
    difference = unseen - published
    # Sums in single precision differ in their last bits.
    p = (1 + int((difference[1:] >= difference[0] - 1e-6).sum())) / (draws + 1)
    allowed = published[0] + float(np.quantile(difference[1:], 1 - LEVEL))
    return FreshScore(float(published[0]), float(unseen[0]), min(1.0, float(allowed)), p)
