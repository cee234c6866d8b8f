"""What verdicts share: cases of which the worst decides, networks of equal error, changes beyond noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from genbench.audit.observed import Row
from genbench.audit.statistics import FLOORS, error_margin

__all__ = ["FITTED", "SEEN_OF_ERROR", "Case", "equal_error", "largest_change", "log_error", "mean_of"]

SEEN_OF_ERROR = 0.1
"""A measure that moves less than this share of what the error does, in logarithms, is blind."""
FITTED = 0.99
"""Training accuracy of a network that counts as fitted."""


@dataclass(frozen=True)
class Case:
    """What could be said of one part of a stressor; the worst part decides."""

    verdict: str
    why: str
    number: float
    networks: tuple[str, str] | None


def equal_error(rows: Sequence[Row], reference: float | None = None) -> list[Row]:
    """Those whose error is the reference's, or the median, within tau."""
    if not rows:
        return []
    middle = float(np.median([row.error for row in rows])) if reference is None else reference
    margin = error_margin(middle, rows[0].truth.test_size)
    # A slack for rounding: errors are shares of counts.
    return [row for row in rows if abs(row.error - middle) <= margin + 1e-9]


def log_error(row: Row) -> float:
    """Of the held-out error; of none, as if it were half an image."""
    return math.log(max(row.error, 0.5 / row.truth.test_size))


def mean_of(rows: Sequence[Row]) -> tuple[float, float]:
    """Mean y and its standard error."""
    return (
        float(np.mean([row.y for row in rows])),
        math.sqrt(sum(row.floor**2 for row in rows)) / len(rows),
    )


def beyond(first: Row, second: Row) -> float:
    """|difference| of two networks beyond three standard errors."""
    return abs(first.y - second.y) - FLOORS * math.hypot(first.floor, second.floor)


def largest_change(rows: Sequence[Row]) -> tuple[float, tuple[str, str] | None]:
    """Largest difference beyond noise within `rows`, and the two networks."""
    best, pair = 0.0, None
    for (one, first), (other, second) in combinations([(row.y, row) for row in rows], 2):
        # Most differ less than that without their noise, which takes longer to tell.
        if abs(one - other) > best and (change := beyond(first, second)) > best:
            best, pair = change, (first.label, second.label)
    return best, pair
