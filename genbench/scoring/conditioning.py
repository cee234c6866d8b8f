"""Groups of hyperparameter values in which both information scores count pairs of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import number_rows

__all__ = ["ConditioningSet", "View", "conditioning_sets", "entropy_sum", "find_views", "merging"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ConditioningSet:
    """A set S of hyperparameters; two runs fall in the group that their two values of S make."""

    names: tuple[str, ...]
    places: tuple[int, ...]
    label: Integers
    """(combos,) number of the assignment of S that each combo has."""

    @cached_property
    def values(self) -> int:
        """How many assignments of S there are."""
        return int(self.label.max(initial=0)) + 1


def conditioning_sets(networks: NetworkTable, sizes: Sequence[int]) -> list[ConditioningSet]:
    """All sets of the given sizes of hyperparameters that vary."""
    sets = []
    for size in sizes:
        for places in combinations(networks.varying, size):
            _, label = number_rows(networks.combo_codes[:, list(places)])
            sets.append(ConditioningSet(tuple(networks.hyperparameters[i] for i in places), places, label))
    return sets


@dataclass(frozen=True, eq=False)
class View:
    """Combos merged to cells, and the sets whose groups are made of whole cells."""

    label: Integers
    """(combos,) cell of each combo."""
    sets: dict[int, Integers]
    """Place of a set to the number of the assignment of S that each cell has."""

    @cached_property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.label.max(initial=0)) + 1


def find_views(networks: NetworkTable, sets: Sequence[ConditioningSet]) -> list[View]:
    """Few views from which every set can be counted.

    A matrix over pairs of combos is summed to pairs of cells once per view, and only these much smaller ones
    once per set. A view leaves one hyperparameter out: one of s + 1 left out in turn is missing in any set
    of s of them. The hyperparameters with the most values make the smallest views.
    """
    codes, varying = networks.combo_codes, list(networks.varying)
    largest = max((len(s.places) for s in sets), default=0)
    left_out: list[int | None] = [None]
    if len(varying) > largest + 1:
        left_out = [*sorted(varying, key=lambda axis: -len(np.unique(codes[:, axis])))[: largest + 1]]
    views, seen = [], set[int]()
    for axis in left_out:
        kept = [place for place in varying if place != axis]
        first, label = number_rows(codes[:, kept])
        own = {n: s.label[first] for n, s in enumerate(sets) if n not in seen and axis not in s.places}
        seen |= set(own)
        views.append(View(label, own))
    return [view for view in views if view.sets]


def merging(label: Integers, dtype: Any) -> Any:
    """(values, rows) sparse; its product with a matrix adds up the rows of each value."""
    shape = (int(label.max(initial=0)) + 1, len(label))
    return sparse.csr_matrix((np.ones(len(label), dtype), (label, np.arange(len(label)))), shape=shape)


def entropy_sum(counts: Floats) -> Floats:
    """x·log x of every count, 0 at 0; sums of it are all that a plug-in information needs."""
    return np.asarray(counts * np.log(np.where(counts > 0, counts, 1.0)))
