"""Does a measure stay where the function, or the error, is the same (000, sections 6 and 7)?"""

from __future__ import annotations

import math

import numpy as np

from genbench.audit.cases import FITTED, Case, equal_error, largest_change
from genbench.audit.observed import Row, Rows
from genbench.audit.statistics import FLOORS

__all__ = ["exponential_cases", "spread_cases"]

_SAME_FUNCTION = 1e-8
"""Largest change of a logit, of the largest logit."""


def exponential_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """R(alpha) = |log C(alpha) − log C(1)| at equal function."""
    cases = []
    for decay in rows.values("decay"):
        panel = rows.where(decay=decay)
        reference = next((row for row in panel if row["alpha"] == 1), None)
        if reference is None:
            continue
        for row in panel:
            if row is reference:
                continue
            change = row.truth.kept.function_change
            if (
                change is None
                or change > _SAME_FUNCTION
                or row.truth.predictions != reference.truth.predictions
            ):
                return "the lever moved the function"
            floor = math.hypot(row.floor, reference.floor)
            moved = abs(row.y - reference.y)
            numbers[f"alpha = {row['alpha']:g}, weight decay {decay:g}: R"] = row.y - reference.y
            how = f"{row.value:.3g} after {reference.value:.3g}, weights × {_growth(row):.2g}"
            pair = (reference.label, row.label)
            if moved > math.log(1.01) + FLOORS * floor:
                ratio = f"× {math.exp(min(moved, 700)):.3g}" if rows.logs else f"by {moved:.3g}"
                sense = "up" if row.y > reference.y else "down"
                cases.append(Case("fragile", f"{ratio} {sense} at equal function: {how}", moved, pair))
            else:
                cases.append(Case("robust", f"invariant: {how}", moved, pair))
    return cases or "no reading at alpha = 1, or none beside it"


def _growth(row: Row) -> float:
    """Of weights by the schedule, over its 100 steps."""
    return float(row["alpha"]) ** -100


def spread_cases(rows: Rows, numbers: dict[str, float]) -> list[Case] | str:
    """CMS and eCMS over recipes."""
    from genbench.scoring.network_table import NetworkTable
    from genbench.scoring.spread import cms

    fitted = [row for row in rows.rows if row.truth.kept.train_accuracy >= FITTED]
    if not rows.logs:
        return "CMS needs logarithms, and a reading is not positive"
    if len(fitted) < 10:
        return "fewer than ten networks fit their training set"
    names = ("net", "optimizer", "rate", "stop")
    levels = [sorted({row[name] for row in fitted}, key=str) for name in names]
    table = NetworkTable(
        hyperparameters=("architecture", *names[1:]),
        codes=np.array(
            [[known.index(row[n]) for n, known in zip(names, levels, strict=True)] for row in fitted]
        ),
        levels=tuple(tuple(known) for known in levels),
        seeds=np.array([int(row["seed"]) for row in fitted]),
        targets={"gap": np.array([row.error for row in fitted])},
        measures=("measure",),
        readings=np.array([[row.y] for row in fitted]),
        logarithms=frozenset({"measure"}),
        test_error=np.array([row.error for row in fitted]),
        test_size=np.array([float(row.truth.test_size) for row in fitted]),
    )
    found = cms(table, resamples=0)
    for part in found.itertuples():
        if "," not in part.part and part.statistic in ("CMS", "eCMS"):
            numbers[f"{part.statistic}({part.part.removeprefix('delta=')})"] = float(part.value)
    value, excess = numbers["CMS(0.02)"], numbers["eCMS(0.02)"]
    if math.isnan(value):
        return "no two networks have equal errors"
    noise = FLOORS * math.sqrt(2) * float(np.median([row.floor for row in fitted]))
    _, pair = max(
        (
            largest_change(equal_error([row for row in fitted if row["net"] == net]))
            for net in rows.values("net")
        ),
        key=lambda one: one[0],
    )
    said = f"CMS(.02) = {value:.3g}, eCMS = {excess:.3g}"
    if value - noise >= math.log(2):
        return [Case("fragile", said, value, pair)]
    word = "stable" if value - noise < math.log(1.25) else "moderate"
    return [Case("robust", f"{word}: {said}", value, pair)]
