"""How the accuracy falls along lines between training examples (003).

A perturbation response curve A(alpha) is the share of pairs for which (1 − alpha)·x + alpha·x' is classified
as x: pairs within a class (intra) or across classes (inter), at the input (l0) or at the output of the first
block (l1), alpha on 21 points from 0 to .5, on 128 to 384 pairs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.measures._estimates import mean_of
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from genbench.plugin.contract import Measure
    from genbench.subject import Subject

__all__ = ["MEASURES", "davies_bouldin", "gi_scores", "interpolation_measure", "pal_areas"]

_DATA = frozenset({"weights", "training_data"})
_REPRESENTED = 512


def gi_scores(alpha: Tensor, accuracy: Tensor) -> Tensor:
    """003 Algorithm 2 for curves (..., points): area between diagonal and cumulated curve, over ½ a².

    It is linear in the curve, so the mean over pairs of the scores of single pairs is the score of their
    mean.
    """
    lost = alpha - torch.nn.functional.pad(torch.cumulative_trapezoid(accuracy, alpha), (1, 0))
    return torch.trapezoid(lost, alpha) / (0.5 * alpha[-1] ** 2)


def pal_areas(alpha: Tensor, accuracy: Tensor) -> tuple[Tensor, Tensor]:
    """Areas under curves (..., points) up to 60 % and up to 10 % of the largest alpha (003 Algorithm 4).

    The printed algorithm lacks the sum over intervals; "index of 60 %" is the first alpha not below it.
    """
    areas = torch.nn.functional.pad(torch.cumulative_trapezoid(accuracy, alpha), (1, 0))
    top, bottom = (int((alpha >= share * alpha[-1] - 1e-9).nonzero()[0]) for share in (0.6, 0.1))
    return areas[..., top], areas[..., bottom]


def _gi(pairs: str, layer: int) -> Callable[[Subject], Estimate]:
    def gi(subject: Subject) -> Estimate:
        alpha, right = subject.response_curve(pairs, layer)
        return mean_of(gi_scores(alpha, right.double()))

    return gi


def _pal(pairs: str, layer: int) -> Callable[[Subject], Estimate]:
    def pal(subject: Subject) -> Estimate:
        alpha, right = subject.response_curve(pairs, layer)
        top, bottom = pal_areas(alpha, right.double())
        if float(bottom.mean()) == 0:
            raise NotApplicable("the network classifies none of the training examples right")
        ratio = float(top.mean() / bottom.mean())
        spread = float((top - ratio * bottom).std()) if len(top) > 1 else math.nan  # delta method
        error = spread / math.sqrt(len(top)) / float(bottom.mean())
        return Estimate(ratio, standard_error=error, samples=len(top))

    return pal


_WHERE = (
    {"intra": "of one class", "inter": "of two classes"},
    {0: "at the input", 1: "behind the first block"},
)

_GI_TEXT = """Gi-score: accuracy lost between examples {pairs}, {layer}.

(1 / (½ a²)) ∫ (alpha − ∫ A) d alpha from 0 to a = .5, A = perturbation response curve; 0 for a network whose
predictions never change. (Algorithm 2)

Limits: it starts from the training accuracy: errors at alpha = 0 count as lost.{more}"""

_PAL_TEXT = """Pal-score: area under the response curve, far over near, {pairs}, {layer}.

∫ A from 0 to .6a over ∫ A from 0 to .1a, a = .5, A = perturbation response curve; 6 for a network whose
predictions never change. Higher means better. (Algorithm 4, with the areas summed)

Limits: blind to an accuracy that is low from the start.{more}"""

_BLOCK_TEXT = """

The first block is the first stage of the network at whose end all paths meet; some networks have none."""


def _measures(
    name: str, text: str, make: Callable[[str, int], Callable[[Subject], Estimate]], better: bool
) -> list[Measure]:
    found = []
    for pairs, pair_words in _WHERE[0].items():
        for layer, layer_words in _WHERE[1].items():
            function = make(pairs, layer)
            function.__doc__ = text.format(
                pairs=pair_words, layer=layer_words, more=_BLOCK_TEXT if layer else ""
            )
            found.append(
                measure(
                    name=f"{name}_{pairs}_l{layer}",
                    category="perturbation",
                    needs=_DATA,
                    randomness="seeded",
                    higher_means="better" if better else "worse",
                    paper=f"003 (Algorithm {4 if better else 2})",
                    cost="high",
                )(function)
            )
    return found


@measure(
    category="perturbation",
    needs=_DATA,
    randomness="seeded",
    higher_means="better",
    paper="003 A.8",
    cost="high",
)
def mixup_intra_l0(subject: Subject) -> Estimate:
    """Accuracy half-way between examples of one class.

    A(.5) of the response curve within classes at the input. Higher means better.
    """
    _, right = subject.response_curve("intra", 0)
    return mean_of(right[:, -1].double())


@measure(category="perturbation", needs=_DATA, randomness="seeded", paper="003 A.8", cost="high")
def dbi_mixup(subject: Subject) -> Estimate:
    """Davies-Bouldin index of the first representation times mixup error, the winner of PGDL.

    DBI·(1 − mixup_intra_l0); DBI = mean over classes i of max over j of (s_i + s_j) / |c_i − c_j|, c =
    class means of the first block's outputs and s = mean distances from them, on at most 512 training
    examples.

    Limits: 0, and so a tie, for every network that gets all mixtures right. The error given is mixup's alone.
    """
    features, labels = subject.first_representation(_REPRESENTED)
    error = mean_of((~subject.response_curve("intra", 0)[1][:, -1]).double())
    index = davies_bouldin(features.double(), labels)
    spread = None if error.standard_error is None else index * error.standard_error
    return Estimate(index * error, standard_error=spread, samples=error.samples)


def davies_bouldin(features: Tensor, labels: Tensor) -> float:
    """The Davies-Bouldin index of points (n, d): low where classes are compact and far apart."""
    classes = labels.unique()
    if len(classes) < 2:
        raise NotApplicable("there is only one class")
    centres = torch.stack([features[labels == c].mean(0) for c in classes])
    spreads = torch.stack(
        [
            (features[labels == c] - centre).norm(dim=1).mean()
            for c, centre in zip(classes, centres, strict=True)
        ]
    )
    distances = torch.cdist(centres, centres)
    if bool((distances + torch.eye(len(classes)) == 0).any()):
        raise NotApplicable("two classes have the same mean in the first representation")
    ratios = (spreads[:, None] + spreads[None, :]) / distances.fill_diagonal_(torch.inf)
    return float(ratios.amax(1).mean())


MEASURES = [
    *_measures("gi", _GI_TEXT, _gi, better=False),
    *_measures("pal", _PAL_TEXT, _pal, better=True),
    mixup_intra_l0,
    dbi_mixup,
]


def interpolation_measure(statistic: str, pairs: str, layer: int) -> Measure:
    """The measure of the family at any layer: 0 is the input, 1, 2, … the output of that block.

    Parameters
    ----------
    statistic : "gi" or "pal".
    pairs : "intra" or "inter".
    """
    known = {one.name: one for one in MEASURES}
    name = f"{statistic}_{pairs}_l{layer}"
    if name in known:
        return known[name]
    first = known[f"{statistic}_{pairs}_l1"]
    function = (_pal if statistic == "pal" else _gi)(pairs, layer)
    function.__doc__ = first.description.replace(_WHERE[1][1], f"behind block {layer}")
    return replace(first, name=name, function=function, summary=function.__doc__.split("\n")[0])
