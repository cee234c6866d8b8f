"""How the accuracy falls when training images are turned, shifted or recoloured (003 Figs. 6–9).

`gi_*` of the four changes are on every board. The whole family is `perturbation_measure`, for a plugin:

    from genbench.measures.transformations import perturbation_measure
    from genbench.plugin import hookimpl

    @hookimpl
    def genbench_measures():
        return [perturbation_measure("pal", "rotation"), perturbation_measure("gi", "intra", layer=2)]
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from genbench.errors import NotApplicable, UserError
from genbench.measures.perturbation import gi_scores, interpolation_measure, pal_areas
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.plugin.contract import HigherMeans, Measure
    from genbench.subject import Subject

__all__ = ["MEASURES", "perturbation_measure"]

Statistic = Literal["gi", "pal"]
Sweep = Literal["folded", "signed"]

_CHANGES = {
    "rotation": ("turned", "a turn by 90° about the centre, black coming in from outside"),
    "horizontal": ("shifted sideways", "a shift by half the width, black coming in from outside"),
    "vertical": ("shifted up and down", "a shift by half the height, black coming in from outside"),
    "colour": ("in other colours", "hues turned by 180° about the axis of greys"),
}
_SWEEPS = {
    "folded": "on images after the share alpha of the largest change, the mean of it either way",
    "signed": "on images after changes from the largest one way to the largest the other way",
}
_TEXTS = {
    "gi": """Gi-score: accuracy lost on training images {words}.

(1 / ½) ∫ (alpha − ∫ A) d alpha from 0 to 1; 0 for a network whose predictions never change. (Algorithm 2)
A(alpha) is the accuracy {curve};
the largest: {largest}.

{limits}It starts from the training accuracy: errors at alpha = 0 count as lost.""",
    "pal": """Pal-score: area under the response curve of images {words}, far over near.

∫ A from 0 to .6 over ∫ A from 0 to .1; 6 for a network whose predictions never change. (Algorithm 4)
A(alpha) is the accuracy {curve};
the largest: {largest}.

{limits}Blind to an accuracy that is low from the start.""",
}
_LIMITS = """Limits: images only, at most 256 of them; of 512 training examples and more, every second one is
changed one way, the others the other way, and at the next alpha the reverse. The paper gives the range of
rotations, ±90°; those of the other changes are genbench's.
"""
_COLOURS = f"""{_LIMITS}Grey images have no colours; channels must have been standardised alike.
"""


def perturbation_measure(
    statistic: Statistic, perturbation: str, *, layer: int = 0, sweep: Sweep = "folded"
) -> Measure:
    """A measure of 003: a statistic of the response curve of one perturbation.

    Parameters
    ----------
    statistic : "gi" (Algorithm 2) or "pal" (Algorithm 4).
    perturbation : between examples, "intra" or "inter"; of images, "rotation", "horizontal" or "vertical"
        (translations) or "colour".
    layer : 0, the input; between examples also 1, 2, …: the output of that block of the network.
    sweep : of images. "folded" starts from the images as they are, so that both statistics mean what they do
        between examples. "signed" goes from the largest change one way to the largest the other way, as the
        caption of the paper's Figure 1 has it: its Pal-score starts from the largest change and *falls* to 6
        for a network that does not mind.
    """
    if statistic not in _TEXTS:
        raise UserError(f"there is no statistic {statistic!r} of response curves; use 'gi' or 'pal'")
    if perturbation in ("intra", "inter"):
        return interpolation_measure(statistic, perturbation, layer)
    if perturbation not in _CHANGES:
        known = ", ".join(map(repr, ("intra", "inter", *_CHANGES)))
        raise UserError(f"there is no perturbation {perturbation!r}; use one of {known}")
    if layer:
        raise UserError(f"{perturbation} changes images, not what block {layer} gives; use layer=0")
    return _of_images(statistic, perturbation, sweep)


def _of_images(statistic: Statistic, change: str, sweep: Sweep) -> Measure:
    summarise = _gi if statistic == "gi" else _pal

    def read(subject: Subject) -> Estimate:
        alpha, right = (values.cpu().double() for values in subject.transformed_curve(change, sweep))
        # Of all examples there is no error of which were chosen.
        left = 1 - len(right) / subject.m
        return summarise(alpha, right, math.sqrt(left))

    words, largest = _CHANGES[change]
    read.__doc__ = _TEXTS[statistic].format(
        words=words, largest=largest, curve=_SWEEPS[sweep], limits=_COLOURS if change == "colour" else _LIMITS
    )
    better: HigherMeans = "better" if statistic == "pal" and sweep == "folded" else "worse"
    return measure(
        name=f"{statistic}_{change}_l0" if sweep == "folded" else f"{statistic}_{change}_signed_l0",
        category="perturbation",
        needs={"weights", "training_data"},
        higher_means=better,
        paper=f"003 (Algorithm {2 if statistic == 'gi' else 4})",
        cost="medium",
        version="2",
    )(read)


def _gi(alpha: Tensor, right: Tensor, unseen: float) -> Estimate:
    scores = gi_scores(alpha, right)
    return Estimate(float(scores.mean()), standard_error=_error(scores, unseen), samples=len(scores))


def _pal(alpha: Tensor, right: Tensor, unseen: float) -> Estimate:
    top, bottom = pal_areas(alpha, right)
    near = float(bottom.mean())
    if near == 0:
        raise NotApplicable("none of the training examples is classified right where the curve starts")
    ratio = float(top.mean()) / near
    error = _error((top - ratio * bottom) / near, unseen)  # delta method
    return Estimate(ratio, standard_error=error, samples=len(top))


def _error(samples: Tensor, unseen: float) -> float | None:
    """Standard error of a mean over some of the examples; `unseen` is √(share that was not looked at)."""
    return float(samples.std()) / math.sqrt(len(samples)) * unseen if len(samples) > 1 else None


MEASURES = [perturbation_measure("gi", change) for change in _CHANGES]
