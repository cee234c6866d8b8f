"""Numbers of a figure as text, three letters each: pages of hundreds of networks stay small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

__all__ = ["Packed", "packed"]

_LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
_STEPS = len(_LETTERS) ** 3 - 2
"""Between the smallest and the largest number; one more code says that there is none."""
_PRECISION = 1e-4
"""Two codes that follow each other differ by less, in proportion: four digits are right."""


class Packed(Struct, frozen=True):
    """`assets/figures.js` unpacks it."""

    sign: int
    """1 or −1: of logarithms of which; 0 of the numbers themselves."""
    low: float
    step: float
    codes: str


def packed(values: Sequence[float | None]) -> Packed | list[float | None]:
    """The numbers, four digits of them right; rounded to as many where three letters do not suffice."""
    known = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    known[np.isinf(known)] = np.nan
    there = known[np.isfinite(known)]
    if len(there) < 2:
        return [_rounded(value) for value in values]
    sign = 1 if (there > 0).all() else -1 if (there < 0).all() else 0
    found = _codes(np.log(sign * known) if sign else known, sign)
    enough = _PRECISION if sign else _PRECISION * float(np.median(np.abs(there)))
    return found if found.step <= enough else [_rounded(value) for value in values]


def _codes(numbers: NDArray[np.float64], sign: int) -> Packed:
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    step = (high - low) / _STEPS
    places = (numbers - low) / step if step > 0 else np.zeros(len(numbers))
    code = np.where(np.isfinite(numbers), np.rint(places), _STEPS + 1).astype(np.int64)
    letters = [_LETTERS[code // len(_LETTERS) ** power % len(_LETTERS)] for power in (2, 1, 0)]
    return Packed(sign, low, step, "".join(np.stack(letters, axis=1).reshape(-1).tolist()))


def _rounded(value: float | None) -> float | None:
    """Whole numbers without a point, to save bytes."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e6 else short
