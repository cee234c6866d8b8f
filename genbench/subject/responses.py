"""Perturbation response curves (003): accuracy along straight lines between training examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.keys import derive_seed
from genbench.subject.cut import CutNetwork, cut_after_block
from genbench.subject.fitting import fits, fitting
from genbench.subject.inputs import Inputs
from genbench.subject.passes import answers
from genbench.subject.precision import precise
from genbench.subject.sampling import example_order, examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["Pairing", "cut_network", "first_products", "midpoints", "paired", "response_curve"]

_POINTS, _END = 21, 0.5
_ROWS, _MIDPOINTS = 256, 768
"""Lines that are followed from alpha = 0 to ½, and pairs that are mixed half and half."""
_POOL = 768
"""Training examples among which partners are found: the first of the fixed order."""
_CHUNK = 256
_GOLDEN = 0.6180339887498949
_PRECISE = 32
"""Bytes for a number of an output while products are made: two blocks and their differences in float64."""


def response_curve(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, pairs: str, layer: int
) -> Part:
    """alpha (points,) and right (rows, points): whether (1 − alpha)·x + alpha·x' is classified as x.

    `pairs`: "intra", x' is of the class of x, or "inter", of another. `layer`: 0, the points are inputs, or
    1, outputs of the first block. A row belongs to one x, and every alpha of it to an x' of its own, so that
    few passes see many pairs; where all pairs are few enough, each is a row. The rest as `Pairing`.
    """
    alpha = torch.linspace(0, _END, _POINTS, dtype=torch.float64, device="cpu")
    pairing = paired(network.labels, pairs, _ROWS, _POINTS)
    right = _right(network, *_ends(network, layer), alpha, pairing)
    return {"alpha": alpha, "right": right, **pairing.design()}


def midpoints(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """right (pairs, 1): whether the input half-way between two examples of one class is classified so."""
    pairing = paired(network.labels, "intra", _MIDPOINTS, 1)
    half = torch.tensor([_END], dtype=torch.float64, device="cpu")
    right = _right(network, _same, lambda x: network.model(x).argmax(1), half, pairing)
    return {"right": right, **pairing.design()}


@dataclass(frozen=True)
class Pairing:
    """Which examples are paired with which."""

    left: Tensor
    """(rows,): x of each row."""
    right: Tensor
    """(rows, points): x' of each point."""
    example: Tensor
    """(rows,): 0, 1, … in the order in which the x first come."""
    seen: float
    """Share of the training examples that have partners that are an x here."""
    partners: float
    """Share of the partners of an x that it meets at each point: 1 if all."""

    def design(self) -> Part:
        """What the error of a mean over rows depends on."""
        seen, partners = torch.tensor([self.seen, self.partners], dtype=torch.float64, device="cpu")
        return {"example": self.example, "seen": seen, "partners": partners}


def paired(labels: Tensor, kind: str, rows: int, points: int) -> Pairing:
    """All ordered pairs if there are at most `rows`; else at most `rows` rows, of as many x as there are.

    Both follow from the labels alone, so that networks trained on one data set meet the same pairs. Row
    numbers and what is computed from them stay on the CPU.
    """
    labels = labels.cpu()
    pool = example_order(len(labels))[:_POOL]
    by_class = pool[labels[pool].sort(stable=True).indices]
    found, counts = labels[by_class].unique_consecutive(return_counts=True)
    ends = counts.cumsum(0)
    place = torch.searchsorted(found, labels[pool])
    count, end = counts[place], ends[place]
    within = torch.empty_like(pool)  # position of each example of the pool in by_class
    within[torch.argsort(labels[pool], stable=True)] = torch.arange(len(pool), device="cpu")
    choices = count - 1 if kind == "intra" else len(pool) - count
    (able,) = (choices > 0).nonzero(as_tuple=True)
    if not len(able):
        raise NotApplicable(
            "no two training examples are of one class" if kind == "intra" else "there is only one class"
        )

    def partner(who: Tensor, number: Tensor) -> Tensor:
        """The partner number 0, 1, … of each example of the pool."""
        if kind == "inter":
            return by_class[(end[who] + number) % len(pool)]
        start = end[who] - count[who]
        return by_class[start + (within[who] - start + 1 + number) % count[who]]

    total = int(choices[able].sum())
    if total <= rows:
        example = torch.arange(len(able), device="cpu").repeat_interleave(choices[able])
        first = (choices[able].cumsum(0) - choices[able])[example]
        who, number = able[example], torch.arange(total, device="cpu") - first
        right = partner(who, number)[:, None].expand(-1, points)
        return Pairing(pool[who], right, example, 1.0, 1.0)
    size = min(len(able), rows)
    each = rows // size
    example = torch.arange(size, device="cpu").repeat_interleave(each)
    who = able[example]
    # Multiples of the golden ratio spread evenly over the partners, whatever part of them is taken.
    generator = torch.Generator("cpu").manual_seed(derive_seed("partners", kind))
    offset = torch.rand(size, generator=generator, dtype=torch.float64, device="cpu")[example]
    count_up = torch.arange(max(len(who), points), device="cpu")
    turn = (count_up[: len(who)] % each * points)[:, None] + count_up[:points]
    share = (offset[:, None] + _GOLDEN * turn) % 1
    number = (share * choices[who][:, None]).long()
    right = partner(who[:, None].expand_as(number), number)
    population = len(labels) * len(able) / len(pool)
    met = float((each / choices[able[:size]].double()).clamp(max=1).mean())
    return Pairing(pool[who], right, example, size / population, min(met, 0.999))


Map = Callable[[Tensor], Tensor]


def _right(network: TrainedNetwork, encode: Map, classify: Map, alpha: Tensor, pairing: Pairing) -> Tensor:
    """(rows, points): is the point between x and x' classified as x?"""
    rows, where = torch.cat([pairing.left[:, None], pairing.right], 1).unique(return_inverse=True)
    size = fitting(network, _CHUNK)
    hits = []
    with torch.no_grad():
        ends = _Encoded(network.inputs.chosen(rows), encode, size)
        for part in torch.arange(len(pairing.left), device="cpu").split(size):
            x, labels = ends[where[part, 0]], network.labels[pairing.left[part]]
            curve = [
                classify(torch.lerp(x, ends[where[part, 1 + point]], float(a))) == labels
                for point, a in enumerate(alpha)
            ]
            hits.append(torch.stack(curve, 1))
    return torch.cat(hits)


class _Encoded:
    """What `encode` makes of inputs: of all of them at once where that fits, else of those asked for."""

    def __init__(self, inputs: Inputs, encode: Map, size: int) -> None:
        self._inputs, self._encode, self._size = inputs, encode, size
        one = encode(inputs[:1])
        self.numbers = one.numel()
        """In what it makes of one input."""
        self._kept: Tensor | None = None
        if fits(len(inputs) * one.numel() * one.element_size()):
            self._kept = one.new_empty(len(inputs), *one.shape[1:])
            for some, x in zip(self._kept.split(size), inputs.split(size), strict=True):
                some.copy_(encode(x))

    def __getitem__(self, rows: Tensor) -> Tensor:
        if self._kept is not None:
            return self._kept[rows.to(self._kept.device)]
        return torch.cat([self._encode(self._inputs[some]) for some in rows.split(self._size)])


def _same(x: Tensor) -> Tensor:
    return x


def _ends(network: TrainedNetwork, layer: int) -> tuple[Map, Map]:
    """What encodes inputs, and what gives the class of what that makes."""
    if layer == 0:
        return _same, answers(network)
    cut = cut_network(network, layer)
    return cut.first, lambda x: cut.rest(x).argmax(1)


def cut_network(network: TrainedNetwork, block: int = 1) -> CutNetwork:
    """The network in two parts, cut at the output of its first block or of a later one."""
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    return cut_after_block(network.folded, block)


def first_products(network: TrainedNetwork, size: int) -> tuple[Tensor, Tensor]:
    """Inner products (n, n) of the first block's outputs less those of one example, and the n labels.

    Of at most `size` training examples. All distances between outputs and between means of them follow from
    the products, which take n² numbers where the outputs may take gigabytes. In float64: on the CPU where the
    network's device has none.
    """
    inputs, labels = examples(network, size)
    with torch.no_grad():
        outputs = _Encoded(inputs, cut_network(network).first, fitting(network, _CHUNK))
        n = block = len(inputs)
        while block > 1 and not fits(_PRECISE * block * outputs.numbers):
            block = (block + 1) // 2
        every = torch.arange(n, device="cpu")
        # Distances do not mind where the origin is; near the outputs the products lose fewer digits.
        origin = precise(outputs[every[:1]]).flatten(1)
        products = origin.new_zeros(n, n)
        for rows in every.split(block):
            left = precise(outputs[rows]).flatten(1) - origin
            for columns in every[: rows[-1] + 1].split(block):
                right = left if columns[0] == rows[0] else precise(outputs[columns]).flatten(1) - origin
                products[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = left @ right.T
    return products.tril() + products.tril(-1).T, labels.to(products.device)
