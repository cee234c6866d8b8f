"""Which way each setting moves the gap, and whether it is the same way everywhere.

A setting with one sign everywhere can be ranked by a rule of one bit, without looking at a network at all
(SPEC.md section 6): an evidence page names such settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import fmean, variance
from typing import Any

__all__ = ["Effect", "setting_effects"]

_SURE = 2.0
"""Standard errors, of the difference of two means over seeds, by which they must differ."""


@dataclass(frozen=True)
class Effect:
    """Of one setting on the gap, over the pairs of combinations that differ in nothing else."""

    setting: str
    pairs: int
    rises: int
    """Pairs in which the gap is surely larger at the larger value."""
    falls: int

    @property
    def one_sign(self) -> bool:
        """Whether the gap surely moves somewhere, and nowhere the other way."""
        return (self.rises > 0) != (self.falls > 0)


def setting_effects(gaps: Mapping[tuple[Any, ...], Sequence[float]], settings: Sequence[str]) -> list[Effect]:
    """Effects of all `settings` that differ somewhere.

    Parameters
    ----------
    gaps : values of the settings, in their order, to the gaps of the networks that have them, one per seed.
        Numbers are compared as such, other values in the order in which they come first.
    """
    known = {combo: list(values) for combo, values in gaps.items() if len(values) > 1}
    found = []
    for place, setting in enumerate(settings):
        order = _order([combo[place] for combo in gaps])
        lines: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for combo in known:
            lines.setdefault((*combo[:place], *combo[place + 1 :]), []).append(combo)
        signs = [
            _sign(known[low], known[high])
            for line in lines.values()
            for low, high in combinations(sorted(line, key=lambda combo: order[combo[place]]), 2)
        ]
        if len(order) > 1:
            found.append(Effect(setting, len(signs), signs.count(1), signs.count(-1)))
    return found


def _order(values: Sequence[Any]) -> dict[Any, int]:
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    return {value: number for number, value in enumerate(distinct)}


def _sign(low: Sequence[float], high: Sequence[float]) -> int:
    """Of the difference high − low of the means; 0 if it is within the error of seeds."""
    difference = fmean(high) - fmean(low)
    error = sqrt(variance(low) / len(low) + variance(high) / len(high))
    return 0 if abs(difference) <= _SURE * error else 1 if difference > 0 else -1
