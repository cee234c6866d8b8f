"""Ranks in which measures that the evidence cannot tell apart are tied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ranked", "differ_surely", "tied_ranks"]


class Ranked(Protocol):
    """A score, lower is better, that knows whether another is surely different."""

    @property
    def value(self) -> float:
        """The headline."""

    def ties_with(self, other: Any) -> bool:
        """Whether the evidence cannot tell the two apart."""


Score = TypeVar("Score", bound=Ranked)


def differ_surely(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether the 95 % interval of the difference of two resampled scores leaves out 0."""
    count = min(len(one), len(other))
    low, high = np.quantile(one[:count] - other[:count], [0.025, 0.975])
    return bool(low > 0 or high < 0)


def tied_ranks(scores: Sequence[Score | None]) -> list[int | None]:
    """1 + how many measures are surely better, for each; None without a score.

    Surely: lower, and the interval of the paired difference does not include 0. A measure may tie with one
    and not with another that lies nearer, so no rank is below that of a measure with a lower value.
    """
    known = [score for score in scores if score is not None]
    rank_of: dict[float, int] = {}
    highest = 1
    for value in sorted({score.value for score in known}):
        for score in known:
            if score.value == value:
                better = sum(other.value < value and not other.ties_with(score) for other in known)
                highest = max(highest, 1 + better)
        rank_of[value] = highest
    return [None if score is None else rank_of[score.value] for score in scores]
