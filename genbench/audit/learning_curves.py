"""Does a learning curve keep its slope, shape and level over recipes (000, section 3)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from genbench.audit.cases import Case, equal_error, largest_change, log_error, mean_of
from genbench.audit.observed import Row, Rows
from genbench.audit.statistics import FLOORS, Line, clear_trend, fit_line, slope_interval

__all__ = ["slope_cases"]


@dataclass(frozen=True)
class _Curve:
    recipe: str
    line: Line
    interval: tuple[float, float]
    level: tuple[float, float]
    means: Mapping[float, tuple[float, float]]
    """n to mean y and its error."""
    rows: Sequence[Row]

    @property
    def sign(self) -> int:
        """Of the slope, where seeds and noise leave no doubt."""
        clear = self.line.clear and (self.interval[0] > 0 or self.interval[1] < 0)
        return (1 if self.line.slope > 0 else -1) if clear else 0

    def turns(self) -> bool:
        """Whether it goes up and down, beyond noise."""
        n = sorted(self.means)
        trend = clear_trend(n, [self.means[k][0] for k in n], [self.means[k][1] for k in n])
        return trend.rising > 0 and trend.falling > 0

    def monotone(self) -> bool:
        """Whether all means go one way."""
        n = sorted(self.means)
        change = np.diff([self.means[k][0] for k in n])
        return bool((change > 0).all() or (change < 0).all())


def slope_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """Learning curves of C by recipe: their slopes, shapes and levels."""
    cases = []
    for net in rows.values("net"):
        equal = [row for n in rows.values("n") for row in equal_error(rows.where(net=net, n=n))]
        curves = [c for recipe in rows.recipes if (c := _curve(equal, recipe)) is not None]
        if len(curves) < 2:
            continue
        sizes = [math.log(float(row["n"])) for row in equal]
        fall = fit_line(sizes, [log_error(row) for row in equal], [0.0] * len(equal)).slope
        numbers[f"{net}: slope of the error"] = fall
        for curve in curves:
            numbers[f"{net}, {curve.recipe}: slope"] = curve.line.slope
            numbers[f"{net}, {curve.recipe}: curvature"] = curve.line.curvature
            numbers[f"{net}, {curve.recipe}: level"] = curve.level[0]
        cases.append(_slope_case(str(net), curves, fall, rows.logs, equal))
    return cases or "too few networks of equal error"


def _curve(equal: Sequence[Row], recipe: str) -> _Curve | None:
    mine = [row for row in equal if row.recipe == recipe]
    by_n: dict[float, list[Row]] = {}
    for row in mine:
        by_n.setdefault(float(row["n"]), []).append(row)
    if len(by_n) < 3:
        return None
    means = {n: mean_of(some) for n, some in by_n.items()}
    x, (y, floors) = [math.log(n) for n in means], zip(*means.values(), strict=True)
    interval = slope_interval(x, [[row.y for row in some] for some in by_n.values()])
    level = (float(np.mean(y)), math.sqrt(sum(f**2 for f in floors)) / len(floors))
    return _Curve(recipe, fit_line(x, y, floors), interval, level, means, mine)


def _slope_case(net: str, curves: Sequence[_Curve], fall: float, logs: bool, equal: Sequence[Row]) -> Case:
    for first, second in combinations(curves, 2):
        if first.sign * second.sign < 0:
            slopes = f"{first.line.slope:+.2f} ({first.recipe}), {second.line.slope:+.2f} ({second.recipe})"
            return Case(
                "fragile", f"{net}: slope flips: b = {slopes}", first.line.slope - second.line.slope,
                _ends(first, second),
            )  # fmt: skip
    for first, second in product(curves, curves):
        if first.monotone() and second.turns():
            return Case(
                "fragile", f"{net}: monotone in n under {first.recipe}, not under {second.recipe}",
                first.line.slope - second.line.slope, _ends(first, second),
            )  # fmt: skip
    top, low = max(curves, key=lambda c: c.level[0]), min(curves, key=lambda c: c.level[0])
    apart = top.level[0] - low.level[0]
    if logs and apart - FLOORS * math.hypot(top.level[1], low.level[1]) > math.log(10):
        why = f"{net}: level × {math.exp(apart):.3g} from {low.recipe} to {top.recipe} at equal error"
        return Case("fragile", why, apart, _ends(low, top))
    # Not in 000: seeds of one recipe and n have equal errors too, and their mean would hide that C is noise.
    for curve in curves:
        for n in curve.means:
            worst, pair = largest_change([row for row in curve.rows if float(row["n"]) == n])
            if logs and worst > math.log(10):
                why = f"{net}: × {math.exp(worst):.3g} between seeds of {curve.recipe} at n = {n:g}"
                return Case("fragile", why, worst, pair)
    steepest = max(curves, key=lambda c: abs(c.line.slope))
    right = all(c.sign == (-1 if fall < 0 else 1) for c in curves)
    slopes = ", ".join(f"{c.line.slope:+.2f}" for c in curves)
    why = f"{net}: b = {slopes}; error {fall:+.2f}: {'right direction' if right else 'not its direction'}"
    return Case("robust", why, apart, _ends(steepest, steepest))


def _ends(first: _Curve, second: _Curve) -> tuple[str, str]:
    """A network of each curve, at the largest n."""
    one, other = (max(c.rows, key=lambda row: float(row["n"])) for c in (first, second))
    return one.label, other.label
