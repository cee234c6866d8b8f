"""What readings will take: from past ones of the same measure on the same suite, else from passes over data.

The unit is one forward and backward pass of all training images of a network, which its kind knows. A measure
that looks at weights alone needs none; others are forward passes, or gradients, and share what they have in
common. The shares of a pass below were counted on `nin-fashion` with all measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from genbench.engine.cells import Cell
from genbench.plugin.contract import Measure
from genbench.runs.past import PastReading
from genbench.runs.plan import Plan
from genbench.suites.kind import kind_of

__all__ = ["ReadingCosts", "reading_costs"]

_ENGINE_SECONDS = 0.012
"""Of the engine, for a reading: to hand it out, to check it and to store it."""
_LOADED_SECONDS = 0.1
"""Of loading a network, once for all readings of it."""
_OWN_PASSES = 0.5
"""Of a measure that needs training data, beside what it shares."""
_SHARED_PASSES = {
    "sharpness": 40.0,
    "flatness": 40.0,
    "information": 25.0,
    "curvature": 25.0,
    "perturbation": 25.0,
}
"""Category to passes of its shared parts: searches over perturbed networks, gradients of every example."""
_PLAIN_PASSES = 2.0
"""Of the outputs, margins and gradients that most other measures share."""
_IMAGES_PER_PASS = 3
"""A pass forward and backward costs as much as three forward."""


@dataclass(frozen=True)
class ReadingCosts:
    """Of the readings that are left."""

    seconds: Mapping[str, float]
    """Key to processor seconds; what readings of a network share counts with the first of them."""
    forward_passes: int
    memory_bytes: int


def reading_costs(plan: Plan, left: Iterable[Cell], past: Mapping[str, PastReading]) -> ReadingCosts:
    """What the readings among the cells `left` will take."""
    missing = {cell.key for cell in left}
    kind, seconds, images = kind_of(plan.suite), {}, 0.0
    measures: list[Measure] = [entry.item for entry in plan.measures]
    for network in plan.evidence.networks:
        wanted = [one for one in measures if _is_left(plan, one.name, network.label, missing)]
        if not wanted:
            continue
        unit = kind.training_pass(plan.suite, network)
        shared = max(_shared(one, unit.seconds, past) for one in wanted)
        images += _IMAGES_PER_PASS * unit.images * max(_shared_passes(one) for one in wanted)
        for place, one in enumerate(wanted):
            own = past[one.name].seconds if one.name in past else _own_passes(one) * unit.seconds
            first = 0.0 if place else shared + _LOADED_SECONDS
            seconds[plan.readings[one.name, network.label].key] = own + _ENGINE_SECONDS + first
            images += _IMAGES_PER_PASS * unit.images * _own_passes(one)
    peaks = [past[one.name].peak_bytes for one in measures if one.name in past]
    return ReadingCosts(seconds, int(images), max(peaks, default=0) if seconds else 0)


def _is_left(plan: Plan, measure: str, network: str, missing: set[str]) -> bool:
    """Whether it is still to be computed; a plan may leave out networks."""
    cell = plan.readings.get((measure, network))
    return cell is not None and cell.key in missing


def _shared(measure: Measure, unit: float, past: Mapping[str, PastReading]) -> float:
    if measure.name in past:
        return past[measure.name].shared_seconds
    return _shared_passes(measure) * unit


def _shared_passes(measure: Measure) -> float:
    if "training_data" not in measure.needs:
        return 0.0
    return _SHARED_PASSES.get(measure.category, _PLAIN_PASSES)


def _own_passes(measure: Measure) -> float:
    return _OWN_PASSES if "training_data" in measure.needs else 0.0
