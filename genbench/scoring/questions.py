"""The four questions of a board, and why one cannot be asked (SPEC.md 6).

chance    the headline sign-error; readings permuted within the family or the population
size      sign-error over pairs of equal architecture and size; readings permuted within an architecture
fit       the same, adjusted for log training loss and training error; residuals permuted within it
settings  sign-error over pairs with the same settings; readings permuted within a combo. Where no two
          networks have the same settings, pairs of one architecture, adjusted for the settings
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.adjust import Adjustment, additive_effects, adjustment, curves, products, surfaces
from genbench.scoring.known_networks import KnownNetworks, numbered
from genbench.scoring.permutations import PERMUTATIONS, freedman_lane_p, permutation_p
from genbench.scoring.signed_pairs import SignedPairs, pairs_of_groups

__all__ = ["QUESTIONS", "Question", "ask", "ask_chance"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

QUESTIONS = ("chance", "size", "fit", "settings")
_LEAST_FREEDOM = 10
"""Dimensions that adjusting must leave, or residuals are mostly what was fitted."""
_SMALLEST_LOSS = 1e-12
_MOST_PIECES = 16
_NETWORKS_PER_PIECE = 15
"""Of the curve in which training loss and error enter."""
_NETWORKS_PER_PRODUCT = 5
"""Of the surface in which they enter together."""
_NETWORKS_PER_COLUMN = 3
"""Networks of a family for each column of settings, or what settings do together is left out."""


@dataclass(frozen=True, eq=False)
class Question:
    """Pairs to be ordered, and among which networks readings are exchangeable if the measure says nothing."""

    pairs: SignedPairs
    groups: Integers
    """(networks,) numbers from 0."""
    adjusted: Adjustment | None = None
    """What readings and truths are freed of before they are compared."""

    residuals: Floats | None = None
    """(slices, networks) of the truth, where it is adjusted."""

    def p(self, entering: Floats, permutations: int = PERMUTATIONS, seed: int = 0) -> Floats:
        """(measures,) of the sign-errors of (networks, measures) readings or residuals."""
        if self.adjusted is None:
            return permutation_p(self.pairs, entering, self.groups, permutations, seed)
        assert self.residuals is not None
        return freedman_lane_p(self.pairs, self.residuals, self.adjusted, entering, permutations, seed)

    def entering(self, readings: Floats) -> Floats:
        """(networks, measures) what is compared: readings, or residuals of their ranks."""
        return readings if self.adjusted is None else self.adjusted.residuals(readings)

    def truths(self, drawn: Floats | None) -> Floats | None:
        """(slices, resamples, networks) resampled truths as they are compared."""
        if drawn is None or self.adjusted is None:
            return drawn
        return np.stack([self.adjusted.residuals(one.T).T for one in drawn])


def ask(known: KnownNetworks) -> dict[str, Question | str]:
    """Every question about networks without gaps, or in one sentence why it cannot be asked."""
    return {
        "chance": ask_chance(known),
        "size": _size(known),
        "fit": _fit(known),
        "settings": _settings(known),
    }


def ask_chance(known: KnownNetworks) -> Question | str:
    """The first question alone."""
    if not len(known.headline):
        return (
            "no environment has 12 effective pairs; it needs more seeds"
            if known.table is not None
            else "no family has two networks with a reading"
        )
    return Question(known.headline, known.family)


def _size(known: KnownNetworks) -> Question | str:
    if known.architecture is None:
        return "architecture and size of the networks are not known"
    pairs = pairs_of_groups(known.architecture, known.family, known.truths)
    if not len(pairs):
        return "no two networks have the same architecture and size"
    return Question(pairs, known.architecture)


def _fit(known: KnownNetworks) -> Question | str:
    equal = _size(known)
    if isinstance(equal, str):
        return equal
    if known.training_loss is None or not np.isfinite(known.training_loss).all():
        return "the training loss of the networks is not known"
    pieces = min(_MOST_PIECES, _smallest_family(known) // _NETWORKS_PER_PIECE)
    loss, error = np.log(np.maximum(known.training_loss, _SMALLEST_LOSS)), known.training_error
    columns = curves(loss, pieces)
    if error is not None and np.isfinite(error).all() and np.ptp(error) > 0:
        surface = surfaces(loss, error, _smallest_family(known) // _NETWORKS_PER_PRODUCT)
        columns = np.column_stack([columns, curves(error, pieces), surface])
    return _adjusted(known, columns, "training loss and error")


def _settings(known: KnownNetworks) -> Question | str:
    if known.combo is not None and known.repeated:
        return Question(pairs_of_groups(known.combo, known.family, known.truths), known.combo)
    equal = _size(known)
    if isinstance(equal, str):
        return "no two networks have the same settings, and " + equal
    if not known.settings:
        return "no two networks have the same settings, and no setting is known that could be adjusted for"
    return _adjusted(known, _settings_columns(known), "settings")


def _settings_columns(known: KnownNetworks) -> Floats:
    """Additive effects of the settings, with as much of what two or more do together as networks allow."""
    room = _smallest_family(known) // _NETWORKS_PER_COLUMN
    combos = numbered(list(zip(*known.settings.values(), strict=True)))
    if combos.max() < room:
        return np.eye(int(combos.max()) + 1)[combos]
    columns, more = additive_effects(known.settings), products(known.settings)
    return np.column_stack([columns, more]) if columns.shape[1] + more.shape[1] <= room else columns


def _smallest_family(known: KnownNetworks) -> int:
    return int(np.unique(known.family, return_counts=True)[1].min())


def _adjusted(known: KnownNetworks, covariates: Floats, what: str) -> Question | str:
    """Pairs of equal architecture and size, truths freed of the covariates."""
    assert known.architecture is not None
    freed = adjustment(covariates, known.architecture, known.family)
    if freed.freedom < _LEAST_FREEDOM:
        return f"adjusting for {what} leaves too little of {len(known)} networks"
    truths = freed.residuals(known.truths.T).T
    pairs = pairs_of_groups(known.architecture, known.family, truths)
    return Question(pairs, known.architecture, freed, truths)
