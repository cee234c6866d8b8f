"""Does a measure stay when training goes on after interpolation (000, section 4)?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np

from genbench.audit.cases import Case, equal_error, log_error
from genbench.audit.observed import Row, Rows
from genbench.audit.statistics import FLOORS, clear_trend, fit_line
from genbench.engine.cells import Setting

__all__ = ["drift_cases", "hysteresis_cases"]

_DRIFT = 0.1
"""|slope of log C on log t| up to which a measure stays."""
_RANK_DRIFT = 0.5
"""Kendall's tau beyond which a measure drifts, where logarithms are not defined."""
_LEAST_CHANGE = math.log(1.05)
"""Changes below do not make two directions: a measure without noise never stays exactly."""
_LEAST_POINTS = 4


def drift_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """Slopes s of log C on log t from T_int on, one for every network and recipe."""
    cases: list[Case] = []
    found: list[tuple[Setting, str]] = []
    for net, recipe in product(rows.values("net"), rows.recipes):
        slopes, floors, of_error, ends = [], [], [], None
        for seed in rows.values("seed"):
            after = _after_interpolation([r for r in rows.where(net=net, seed=seed) if r.recipe == recipe])
            if after is None:
                continue
            t, y, f = (
                [math.log(r.truth.kept.epoch) for r in after],
                [r.y for r in after],
                [r.floor for r in after],
            )
            line = fit_line(t, y, f)
            slopes.append(line.slope if rows.logs else clear_trend(t, y, f).tau_of_all)
            floors.append(line.floor if rows.logs else 0.0)
            of_error.append(fit_line(t, [log_error(r) for r in after], [0.0] * len(after)).slope)
            ends = (after[0].label, after[-1].label)
        if slopes:
            slope, floor = float(np.mean(slopes)), math.sqrt(sum(f**2 for f in floors)) / len(floors)
            found.append((net, recipe))
            numbers[f"{net}, {recipe}: s"] = slope
            numbers[f"{net}, {recipe}: s of the error"] = float(np.mean(of_error))
            moved = abs(slope) > (_DRIFT if rows.logs else _RANK_DRIFT) and abs(slope) > FLOORS * floor
            word = "drifts" if moved else "stays"
            cases.append(
                Case(
                    "fragile" if moved else "robust",
                    f"{net}, {recipe}: {word}, s = {slope:+.2f}",
                    slope,
                    ends,
                )
            )
    return _with_flips(cases, found) or "no run interpolated early enough, at a steady error"


def _with_flips(cases: list[Case], found: Sequence[tuple[Setting, str]]) -> list[Case]:
    """The same, or instead two recipes under which one network drifts in opposite directions."""
    moved = {key: case for key, case in zip(found, cases, strict=True) if case.verdict == "fragile"}
    for (one, first), (other, second) in combinations(moved.items(), 2):
        if one[0] == other[0] and first.number * second.number < 0:
            slopes = f"{first.number:+.2f} ({one[1]}), {second.number:+.2f} ({other[1]})"
            why = f"{one[0]}: drift flips: s = {slopes}"
            return [Case("fragile", why, first.number - second.number, first.networks)]
    return cases


def _after_interpolation(run: Sequence[Row]) -> list[Row] | None:
    """Checkpoints of one run from T_int on, at the error of T_int; None where there is too little to see."""
    start = next((row for row in run if row["kept"] == "T_int"), None)
    if start is None or not start.truth.kept.reached:
        return None
    later = [row for row in run if row.truth.kept.epoch > start.truth.kept.epoch]
    after = equal_error([start, *sorted(later, key=lambda r: r.truth.kept.epoch)], start.error)
    late = after[-1].truth.kept.epoch >= 3 * start.truth.kept.epoch
    return after if len(after) >= _LEAST_POINTS and late else None


def hysteresis_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """Changes D of log C since T_int, one for every optimizer that goes on from there."""
    branches: dict[str, list[tuple[float, float, Row]]] = {}
    for start in rows.where(net="fcn", optimizer="adam", rate=0.01, kept="T_int"):
        if not start.truth.kept.reached:
            continue
        mine = [row for row in rows.where(seed=start["seed"]) if row.truth.stressor == "hysteresis"]
        for end in _last(mine):
            if equal_error([start, end], start.error)[-1:] == [end]:
                change = (end.y - start.y, math.hypot(end.floor, start.floor), end)
                branches.setdefault(end.recipe, []).append(change)
    if len(branches) < 2:
        return "fewer than two branches stay at the error of T_int"
    moved = {}
    for recipe, changes in branches.items():
        floor = math.sqrt(sum(f**2 for _, f, _ in changes)) / len(changes)
        moved[recipe] = (float(np.mean([d for d, _, _ in changes])), floor, changes[0][2].label)
        numbers[f"{recipe}: D"] = moved[recipe][0]
    cases = []
    for (one, first), (other, second) in combinations(moved.items(), 2):
        apart = abs(first[0] - second[0]) - FLOORS * math.hypot(first[1], second[1])
        clear = all(abs(d) > FLOORS * f + _LEAST_CHANGE for d, f, _ in (first, second))
        opposite = clear and first[0] * second[0] < 0
        fragile = opposite or apart > math.log(2)
        said = f"D = {first[0]:+.2f} ({one}), {second[0]:+.2f} ({other})"
        cases.append(
            Case("fragile" if fragile else "robust", said, first[0] - second[0], (first[2], second[2]))
        )
    return cases


def _last(rows: Sequence[Row]) -> list[Row]:
    """Of each recipe, the network that was trained longest."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.recipe not in found or row.truth.kept.epoch > found[row.recipe].truth.kept.epoch:
            found[row.recipe] = row
    return list(found.values())
