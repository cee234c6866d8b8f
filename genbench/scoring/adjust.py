"""Readings and truths adjusted for what is known anyway: training fit, or settings (SPEC.md 6).

Ranks within the board are centred within an architecture and regressed on covariates that are centred alike,
with slopes of their own in each family. The residuals are what the covariates do not say.

A straight line is not enough: a measure may be any function of the training loss, and on `nin-digits` 45 %
of random functions of it passed the question for fit when log loss entered as a line, 2 % as a curve. So
covariates enter as curves, and settings with what they do together, as far as the number of networks allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.scoring.grid import on_grid
from genbench.scoring.ranks import column_ranks

__all__ = ["Adjustment", "additive_effects", "adjustment", "curves", "products", "surfaces"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_FEW_LEVELS = 5
"""A setting with at most so many levels has an effect per level; a numeric one with more, a parabola."""
_CUBIC = 3
_BITS = 20
"""Behind the point, of residuals of ranks; those that agree in them are tied. Rounding must order nothing, so
there are fewer where covariates nearly depend on each other, and rounding grows."""
_WHOLE_BITS = 30
"""Residuals are whole numbers of this grid below 2^30; they are less than the number of networks."""
_ABOVE_ROUNDING = 2.0**8
"""Times rounding, at least, that the grid is wide: one pair of 256 equal residuals may fall apart."""


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What ranks are freed of."""

    architecture: Integers
    """(networks,) numbers from 0."""
    basis: Floats
    """(networks, dimensions) orthonormal columns, centred within architectures, each in one family."""
    condition: float = 1.0
    """How many times as large as rounding errors of the covariates those of the basis may be."""

    @property
    def bits(self) -> int:
        """Behind the point, in which residuals are compared."""
        count = len(self.architecture)
        rounding = np.finfo(np.float64).eps * self.condition * count
        return min(_BITS, _WHOLE_BITS - count.bit_length(), int(-np.log2(_ABOVE_ROUNDING * rounding)))

    @property
    def freedom(self) -> int:
        """Dimensions that residuals still have."""
        return len(self.architecture) - len(np.unique(self.architecture)) - int(self.basis.shape[1])

    def residuals(self, values: ArrayLike) -> Floats:
        """(networks, columns) residuals of the ranks of every column."""
        ranks = column_ranks(values)
        ranks -= _group_means(ranks, self.architecture)
        return on_grid(ranks - self.basis @ (self.basis.T @ ranks), self.bits)


def adjustment(covariates: Floats, architecture: Integers, family: Integers) -> Adjustment:
    """For (networks, covariates); those that are constant within all architectures of a family fall away."""
    centred = covariates - _group_means(covariates, architecture)
    scale = np.sqrt(np.mean(np.square(covariates - covariates.mean(axis=0)), axis=0))
    centred = centred / np.where(scale > 0, scale, 1.0)
    parts, condition = [], 1.0
    for one in np.unique(family):
        inside = np.where((family == one)[:, None], centred, 0.0)
        left, size, _ = np.linalg.svd(inside, full_matrices=False)
        kept = size > 1e-7 * np.sqrt(len(family))
        parts.append(left[:, kept])
        condition = max(condition, float(size.max() / size[kept].min()) if kept.any() else 1.0)
    return Adjustment(architecture, np.concatenate(parts, axis=1), condition)


def additive_effects(settings: Mapping[str, Sequence[object]]) -> Floats:
    """(networks, columns) a column per level of every setting, but of numeric ones with many levels the
    place of the level, from −1 to 1, and its square."""
    columns: list[Floats] = []
    for values in settings.values():
        levels, place = _levels(values)
        if len(levels) <= _FEW_LEVELS or any(isinstance(value, str | bool) for value in levels):
            columns.append(np.eye(len(levels))[place])
        else:
            scaled = 2 * place / (len(levels) - 1) - 1
            columns.append(np.column_stack([scaled, scaled**2]))
    count = len(next(iter(settings.values()))) if settings else 0
    return np.concatenate(columns, axis=1) if columns else np.zeros((count, 0))


def products(settings: Mapping[str, Sequence[object]]) -> Floats:
    """(networks, pairs of settings) products of the places of their levels, each centred."""
    places = [_levels(values)[1] + 1 for values in settings.values()]
    centred = [place - place.mean() for place in places]
    found = [one * other for one, other in combinations(centred, 2)]
    return np.column_stack(found) if found else np.zeros((len(next(iter(settings.values()), [])), 0))


def curves(values: Floats, pieces: int) -> Floats:
    """(networks, columns) cubic B-splines: any smooth function.

    Knots are at even steps of the mean of rank and value, each from 0 to 1. At quantiles alone, a long tail,
    such as log losses of converged networks have, would be left to a single piece: on `nin-fashion` 8 % of
    random functions of loss and error passed the question for fit.

    Parameters
    ----------
    pieces : at most so many between knots; 0 for the values themselves.
    """
    if pieces == 0 or np.ptp(values) == 0:
        return values[:, None]
    ordered = np.sort(values)
    place = np.linspace(0, 1, len(values)) + (ordered - ordered[0]) / np.ptp(ordered)
    knots = np.unique(np.interp(np.linspace(0, 2, pieces + 1), place, ordered))
    from scipy.interpolate import BSpline  # slow to load, and a run is to start its workers first

    ends = [knots[:1].repeat(_CUBIC), knots, knots[-1:].repeat(_CUBIC)]
    return np.asarray(BSpline.design_matrix(values, np.concatenate(ends), _CUBIC).toarray())


def surfaces(one: Floats, other: Floats, columns: int) -> Floats:
    """(networks, at most `columns`) products of curves of two values: any smooth function of both.

    Where there is room for less than a cubic polynomial in each, the product of the two.
    """
    each = int(np.sqrt(columns))
    if each <= _CUBIC:
        return np.asarray((one - one.mean()) * (other - other.mean()))[:, None]
    left, right = (curves(values, each - _CUBIC) for values in (one, other))
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(one), -1))


def _levels(values: Sequence[Any]) -> tuple[list[Any], Integers]:
    """Levels in increasing order, and the place of each value."""
    levels = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    number = {level: place for place, level in enumerate(levels)}
    return levels, np.array([number[value] for value in values], dtype=np.int64)


def _group_means(values: Floats, groups: Integers) -> Floats:
    """(networks, columns) of (networks, columns): the mean of each network's group."""
    sums = np.zeros((int(groups.max(initial=0)) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    return np.asarray((sums / np.maximum(np.bincount(groups), 1)[:, None])[groups])
