"""Readings on the site's pages, three letters each."""

from __future__ import annotations

import math
import string

import numpy as np
import pytest

from genbench.display.packed import Packed, packed

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


def unpacked(found: Packed) -> list[float | None]:
    """As `assets/figures.js` does it, before it rounds."""
    values: list[float | None] = []
    for start in range(0, len(found.codes), 3):
        code = 0
        for letter in found.codes[start : start + 3]:
            code = 64 * code + ALPHABET.index(letter)
        number = found.low + code * found.step
        number = found.sign * math.exp(number) if found.sign else number
        values.append(None if code == 64**3 - 1 else number)
    return values


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-30, 1e30])
def test_readings_of_one_sign_keep_four_digits(scale) -> None:
    values = [scale * value for value in (1.0, 1.2345, 17.0, 4711.0, 9e9)]
    found = packed([values[0], None, *values[1:]])
    assert isinstance(found, Packed)
    assert len(found.codes) == 3 * 6
    first, missing, *others = unpacked(found)
    assert missing is None
    assert [first, *others] == pytest.approx(values, rel=5e-5)


def test_readings_of_both_signs_and_zero() -> None:
    values = np.random.default_rng(0).normal(size=1280).tolist()
    found = packed([0.0, *values])
    assert isinstance(found, Packed)
    assert unpacked(found) == pytest.approx([0.0, *values], abs=2e-5)


@pytest.mark.parametrize("values", [[1e-200, 1.0, 1e200], [-1e9, 1.5, 2.5, 3.5], [3.0, None], [None, None]])
def test_what_three_letters_cannot_hold_stays_a_list(values) -> None:
    assert packed(values) == values


def test_equal_readings() -> None:
    assert unpacked(packed([2.0, 2.0, None])) == [pytest.approx(2.0), pytest.approx(2.0), None]  # type: ignore[arg-type]
