"""Perturbation response curves (003): accuracy along straight lines between training examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.subject.cut import CutNetwork, cut_after_block
from genbench.subject.sampling import RELATIVE_ERROR, relative_error

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["cut_network", "response_curve"]

_POINTS, _END = 21, 0.5
_CHUNK, _MOST = 128, 384
"""Pairs are added in chunks until the area above the curve is known to 5 %, or up to so many."""


def response_curve(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, pairs: str, layer: int
) -> Part:
    """alpha (points,) and right (pairs, points): whether (1 − alpha)·x + alpha·x' is classified as x.

    `pairs`: "intra", of one class, or "inter", of two; each example is in one pair at most. `layer`: 0, the
    points are inputs, or 1, outputs of the first block. The same pairs serve every alpha.
    """
    alpha = torch.linspace(0, _END, _POINTS, dtype=torch.float64)
    left, right = _pairs(network.labels, pairs, generator)
    encode, classify = _ends(network, layer)
    hits: list[Tensor] = []
    with torch.no_grad():
        for rows, others in zip(left[:_MOST].split(_CHUNK), right[:_MOST].split(_CHUNK), strict=True):
            x, y = encode(network.inputs[rows]), encode(network.inputs[others])
            labels = network.labels[rows]
            curve = [classify(torch.lerp(x, y, float(a))).argmax(1) == labels for a in alpha]
            hits.append(torch.stack(curve, 1))
            lost = (~torch.cat(hits)).double().mean(1)
            if relative_error(lost.tolist()) <= RELATIVE_ERROR:
                break
    return {"alpha": alpha, "right": torch.cat(hits)}


def _pairs(labels: Tensor, kind: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    rows = torch.randperm(len(labels), generator=generator)
    if kind == "intra":
        rows = rows[labels[rows].sort(stable=True).indices]  # 003 Algorithm 3
    left, right = rows[: len(rows) // 2 * 2].view(-1, 2).T
    fitting = (labels[left] == labels[right]) == (kind == "intra")
    left, right = left[fitting], right[fitting]
    if not len(left):
        raise NotApplicable(
            "no two training examples are of one class" if kind == "intra" else "there is only one class"
        )
    order = torch.randperm(len(left), generator=generator)
    return left[order], right[order]


def _ends(
    network: TrainedNetwork, layer: int
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    if layer == 0:
        return (lambda x: x), network.model
    cut = cut_network(network, layer)
    return cut.first, cut.rest


def cut_network(network: TrainedNetwork, block: int = 1) -> CutNetwork:
    """The network in two parts, cut at the output of its first block or of a later one."""
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    return cut_after_block(network.folded, block)
