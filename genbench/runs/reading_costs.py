"""What readings will take: from past ones of the same measure on the same suite, else from passes over data.

The unit is one forward and backward pass of all training images of a network, which its kind knows. What
measures of a network have in common is computed once: its outputs, which are one forward pass, and what
those of a category search for, on a number of examples that does not grow with the training set. Both were
counted in the records of `mini` and of `nin-fashion`, whose networks and training sets differ most; what
`information` and `curvature` take is a guess, between flatness and perturbation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from genbench.engine.cells import Cell
from genbench.plugin.contract import Measure
from genbench.runs.past import PastReading
from genbench.runs.plan import Plan
from genbench.suites.kind import kind_of
from genbench.suites.plan import TrainingPass

__all__ = ["ReadingCosts", "reading_costs"]

_ENGINE_SECONDS = 0.012
"""Of the engine, for a reading: to hand it out, to check it and to store it."""
_LOADED_SECONDS = 0.1
"""Of loading a network, once for all readings of it."""
_FORWARD_PASSES = 1 / 3
"""Of the outputs, which all measures share that look at data."""
_SEARCHED_IMAGES = {
    "flatness": 700,
    "information": 450,
    "curvature": 450,
    "perturbation": 400,
    "sharpness": 250,
    "gradient": 250,
}
"""Category to images forward and backward: searches over perturbed networks, gradients of examples."""
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
        shared = _shared_seconds(wanted, unit, past)
        images += _IMAGES_PER_PASS * _shared_images(wanted, unit)
        for place, one in enumerate(wanted):
            own = past[one.name].seconds if one.name in past else 0.0
            first = 0.0 if place else shared + _LOADED_SECONDS
            seconds[plan.readings[one.name, network.label].key] = own + _ENGINE_SECONDS + first
    peaks = [past[one.name].peak_bytes for one in measures if one.name in past]
    return ReadingCosts(seconds, int(images), max(peaks, default=0) if seconds else 0)


def _is_left(plan: Plan, measure: str, network: str, missing: set[str]) -> bool:
    """Whether it is still to be computed; a plan may leave out networks."""
    cell = plan.readings.get((measure, network))
    return cell is not None and cell.key in missing


def _shared_seconds(wanted: list[Measure], unit: TrainingPass, past: Mapping[str, PastReading]) -> float:
    """Past readings say what they shared with all others; of categories without one it comes on top."""
    known = [past[one.name].shared_seconds for one in wanted if one.name in past]
    told = {one.category for one in wanted if one.name in past}
    new = [one for one in wanted if one.name not in past and one.category not in told]
    images = _shared_images(new, unit) - (_outputs(new, unit) if any(known) else 0.0)
    return max(known, default=0.0) + unit.seconds * images / max(1, unit.images)


def _shared_images(wanted: list[Measure], unit: TrainingPass) -> float:
    """Forward and backward."""
    searched = {one.category for one in wanted if _looks(one)} & _SEARCHED_IMAGES.keys()
    return _outputs(wanted, unit) + sum(_SEARCHED_IMAGES[category] for category in searched)


def _outputs(wanted: list[Measure], unit: TrainingPass) -> float:
    return _FORWARD_PASSES * unit.images if any(map(_looks, wanted)) else 0.0


def _looks(measure: Measure) -> bool:
    """Whether it looks at data."""
    return "training_data" in measure.needs
