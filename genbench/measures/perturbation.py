"""How the accuracy falls along lines between training examples (003).

A perturbation response curve A(alpha) is the share of pairs for which (1 − alpha)·x + alpha·x' is classified
as x: pairs within a class (intra) or across classes (inter), at the input (l0) or at the output of the first
block (l1), alpha on 21 points from 0 to .5. All ordered pairs where they are at most 256; else 256 lines from
as many training examples x, with another x' at every alpha, so that up to 5,000 pairs are met; and 768
pairs for mixup. Each x counts the same. Pairs depend on the labels alone: networks trained on the same data
meet the same. The error is that of the choice of x and of their partners, and 0 where all pairs were met.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.measures._estimates import jackknife, mean_over_rows, skewed, together
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from genbench.plugin.contract import Measure
    from genbench.subject import Subject

__all__ = ["MEASURES", "davies_bouldin", "gi_scores", "interpolation_measure", "pal_areas"]

_DATA = frozenset({"weights", "training_data"})
_REPRESENTED, _LEFT_OUT = 512, 8
"""Examples behind the Davies-Bouldin index, and groups of them that are left out for its error."""
_ROUNDING = 1e-14
"""Squared distance of two class means, relative to their squares, that is rounding."""


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


def _on_cpu(curve: dict[str, Tensor]) -> dict[str, Tensor]:
    """A table of some thousand numbers: the CPU sums it in float64, and always in the same order."""
    return {name: values.cpu() for name, values in curve.items()}


def _gi(pairs: str, layer: int) -> Callable[[Subject], Estimate]:
    def gi(subject: Subject) -> Estimate:
        curve = _on_cpu(subject.response_curve(pairs, layer))
        alpha, right = curve["alpha"].double(), curve["right"].double()
        all_but_one = 1 - torch.eye(len(alpha), dtype=torch.float64, device="cpu")
        heaviest = float(gi_scores(alpha, all_but_one).max())
        return skewed(mean_over_rows(gi_scores(alpha, right), curve, finest=heaviest / len(right)))

    return gi


def _pal(pairs: str, layer: int) -> Callable[[Subject], Estimate]:
    def pal(subject: Subject) -> Estimate:
        curve = _on_cpu(subject.response_curve(pairs, layer))
        alpha, right = curve["alpha"].double(), curve["right"].double()
        top, bottom = pal_areas(alpha, right)
        near = mean_over_rows(bottom, curve)
        if float(near) == 0:
            raise NotApplicable("the network classifies none of the training examples right")
        ratio = mean_over_rows(top, curve) / near
        # Delta method; a single answer far off changes the area by the distance of two alphas.
        finest = float(alpha[1]) / len(right)
        rest = mean_over_rows(top - ratio * bottom, curve, finest)
        error = None if rest.standard_error is None else rest.standard_error / near
        far, close = pal_areas(alpha, torch.ones_like(alpha))  # of predictions that never change
        lost = float(far / close) - ratio
        return skewed(Estimate(ratio, standard_error=error, samples=len(right)), span=lost)

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
                    version="2" if layer else "3",
                )(function)
            )
    return found


def _mixup(subject: Subject) -> Estimate:
    half = _on_cpu(subject.midpoints())
    right = half["right"][:, 0].double()
    return mean_over_rows(right, half, finest=1 / len(right))


@measure(
    category="perturbation",
    needs=_DATA,
    randomness="seeded",
    higher_means="better",
    paper="003 A.8",
    cost="high",
    version="2",
)
def mixup_intra_l0(subject: Subject) -> Estimate:
    """Accuracy half-way between examples of one class.

    A(.5) of the response curve within classes at the input. Higher means better.
    """
    return _mixup(subject)


@measure(category="perturbation", needs=_DATA, randomness="seeded", paper="003 A.8", cost="high", version="3")
def dbi_mixup(subject: Subject) -> Estimate:
    """Davies-Bouldin index of the first representation times mixup error, the winner of PGDL.

    DBI·(1 − mixup_intra_l0); DBI = mean over classes i of max over j of (s_i + s_j) / |c_i − c_j|, c =
    class means of the first block's outputs and s = mean distances from them, on at most 512 training
    examples.

    Limits: 0, and so a tie, for every network that gets all mixtures right.
    """
    mixup = _mixup(subject)
    wrong = 1 - mixup
    index, spread = _representation_index(subject)
    error = together(index * (mixup.standard_error or 0.0), wrong * spread)
    return Estimate(index * wrong, standard_error=error, samples=mixup.samples)


def _representation_index(subject: Subject) -> tuple[float, float]:
    """The Davies-Bouldin index of the first representation, and its error over the choice of examples."""
    products, labels = subject.first_products(_REPRESENTED)
    index, n = davies_bouldin(products, labels), len(labels)
    if n == subject.m:
        return index, 0.0
    left_out = []
    for group in range(_LEFT_OUT):
        kept = torch.arange(n, device=labels.device) % _LEFT_OUT != group
        left_out.append(davies_bouldin(products[kept][:, kept], labels[kept]))
    spread = jackknife(torch.tensor(left_out, dtype=torch.float64, device="cpu"))
    return index, math.sqrt(1 - n / subject.m) * spread


def davies_bouldin(products: Tensor, labels: Tensor) -> float:
    """The Davies-Bouldin index of points: low where classes are compact and far apart.

    `products` (n, n): the points' inner products x·x', from any origin: |x − c|² = x·x − 2 x·c + c·c, and the
    class means c are means of points.
    """
    classes, place, counts = labels.unique(return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise NotApplicable("there is only one class")
    shares = torch.nn.functional.one_hot(place).to(products.dtype) / counts  # n, classes
    with_centres = products @ shares
    between = shares.T @ with_centres  # c·c'
    squares = between.diagonal()
    from_own = products.diagonal() - 2 * with_centres.gather(1, place[:, None])[:, 0] + squares[place]
    spreads = shares.T @ from_own.clamp(min=0).sqrt()
    sizes = squares[:, None] + squares
    apart = (sizes - 2 * between).fill_diagonal_(torch.inf)
    if bool((apart <= _ROUNDING * sizes).any()):
        raise NotApplicable("two classes have the same mean in the first representation")
    return float(((spreads[:, None] + spreads) / apart.sqrt()).amax(1).mean())


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
