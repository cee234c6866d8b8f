"""Counting pairs of runs within groups of hyperparameter values, for both information scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.network_table import NetworkTable

__all__ = ["ConditioningSet", "conditioning_sets", "entropy_sum"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ConditioningSet:
    """A set S of hyperparameters; two runs fall in the group that their two values of S make."""

    names: tuple[str, ...]
    onehot: Floats
    """(combos, values) 1 where a combo has that assignment of S."""

    def group(self, matrices: NDArray[np.floating[Any]]) -> Floats:
        """Sums of (…, combos, combos) whole numbers over each group: (…, values, values)."""
        # Whole numbers below 2^24 are added exactly in single precision too.
        onehot = self.onehot.astype(matrices.dtype)
        return np.asarray(onehot.T @ (matrices @ onehot), dtype=np.float64)


def conditioning_sets(networks: NetworkTable, sizes: Sequence[int]) -> list[ConditioningSet]:
    """All sets of the given sizes of hyperparameters that vary."""
    sets = []
    for size in sizes:
        for places in combinations(networks.varying, size):
            _, value = np.unique(networks.combo_codes[:, list(places)], axis=0, return_inverse=True)
            onehot = np.eye(value.max() + 1)[value.reshape(-1)]
            sets.append(ConditioningSet(tuple(networks.hyperparameters[i] for i in places), onehot))
    return sets


def entropy_sum(counts: Floats) -> Floats:
    """x·log x of every count, 0 at 0; sums of it are all that a plug-in information needs."""
    return np.asarray(counts * np.log(np.where(counts > 0, counts, 1.0)))
