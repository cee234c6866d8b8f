"""Statistics of the audit, on arrays alone: slopes, trends that noise cannot make, errors that are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FLOORS", "Line", "clear_trend", "error_margin", "fit_line", "slope_interval"]

Floats = NDArray[np.float64]

FLOORS = 3.0
"""A change counts if it is larger than so many standard errors."""
_LEAST_MARGIN = 0.03
_RESAMPLES = 500
_TRIFLE = 1e-9
"""Changes of y below this are rounding, whatever a measure says of its error."""


def error_margin(error: float, test_size: int) -> float:
    """tau = max(.03, 2·sqrt(2 e (1 − e) / n)): how far the error of a network may be from e to be equal."""
    return max(_LEAST_MARGIN, 2 * math.sqrt(2 * error * (1 - error) / test_size))


@dataclass(frozen=True)
class Line:
    """A straight line by least squares."""

    slope: float
    floor: float
    """Standard error of the slope that the errors of the readings make."""
    curvature: float
    """Coefficient of x² of the parabola by least squares; 0 with fewer than three points."""

    @property
    def clear(self) -> bool:
        """Whether noise of the readings cannot have made the slope."""
        return abs(self.slope) > FLOORS * self.floor + _TRIFLE


def fit_line(x: ArrayLike, y: ArrayLike, floors: ArrayLike) -> Line:
    """y on x; errors of readings are taken as independent of each other."""
    x, y, floors = (np.asarray(values, dtype=np.float64) for values in (x, y, floors))
    centred = x - x.mean()
    weight = centred / (centred**2).sum()
    # The weights sum to 0, but for rounding: a measure that never moves has a slope of 0, not of ±1e-15.
    moved: Floats = y - y[0]
    curvature = float(np.polyfit(centred, moved, 2)[0]) if len(x) > 2 else 0.0
    return Line(float(weight @ moved), float(np.sqrt(weight**2 @ floors**2)), curvature)


def slope_interval(x: ArrayLike, y: Sequence[Sequence[float]], seed: int = 0) -> tuple[float, float]:
    """95 % interval of the slope of mean y on x over seeds, by bootstrap: y[i] are the values at x[i]."""
    x = np.asarray(x, dtype=np.float64)
    centred = x - x.mean()
    weight = centred / (centred**2).sum()
    generator = np.random.default_rng(seed)
    drawn = [
        np.asarray(values)[generator.integers(0, len(values), (_RESAMPLES, len(values)))].mean(axis=1)
        for values in y
    ]
    low, high = np.quantile(weight @ np.stack(drawn), [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Trend:
    """Kendall's tau over those pairs that noise cannot have ordered."""

    rising: int
    falling: int
    level: int
    """Pairs whose difference noise can explain."""

    @property
    def tau(self) -> float:
        """(rising − falling) / (rising + falling); 0 where nothing moves."""
        moved = self.rising + self.falling
        return (self.rising - self.falling) / moved if moved else 0.0

    @property
    def tau_of_all(self) -> float:
        """The same over all pairs: what does not move orders nothing."""
        count = self.rising + self.falling + self.level
        return (self.rising - self.falling) / count if count else 0.0


def clear_trend(x: ArrayLike, y: ArrayLike, floors: ArrayLike) -> Trend:
    """Of y with x, over pairs of different x; a pair is level within three errors of its difference."""
    x, y, floors = (np.asarray(values, dtype=np.float64) for values in (x, y, floors))
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    first, second = first[apart], second[apart]
    change = (y[second] - y[first]) * np.sign(x[second] - x[first])
    noise = FLOORS * np.hypot(floors[first], floors[second]) + _TRIFLE
    rising, falling = int((change > noise).sum()), int((change < -noise).sum())
    return Trend(rising, falling, len(first) - rising - falling)
