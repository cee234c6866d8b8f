"""Perturbation response curves of images that are turned, shifted or recoloured (003 A.10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.passes import answers
from genbench.subject.precision import wide
from genbench.subject.sampling import examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["TRANSFORMATIONS", "transformed_curve"]

Change = Callable[[Tensor, float, Tensor], Tensor]

_POINTS, _EXAMPLES = 21, 256
_MANY = 2 * _EXAMPLES
"""Training examples from which on each of those looked at is changed one way at a point: they are a sample
anyway, whose error that raises by 2 % at most (of rotations on mini), for half the passes."""


def transformed_curve(
    network: TrainedNetwork,
    parts: PartSource,
    generator: torch.Generator,
    transformation: str,
    sweep: str,
) -> Part:
    """alpha (points,) from 0 to 1, and right (examples, points): share of changed copies classified right.

    `sweep`: "folded", alpha is the size of the change and a point the mean of that change either way; of
    large training sets, every second example is changed one way and the others the other way, and at the
    next point the reverse. "signed", alpha = 0 is the largest change one way, ½ none and 1 the largest the
    other way. At most 256 training examples, the same for all networks that share a training set.
    """
    change = TRANSFORMATIONS[transformation]
    inputs, labels = examples(network, _EXAMPLES)
    if inputs.ndim != 4:
        raise NotApplicable(f"inputs of shape {tuple(inputs.shape[1:])} are not images")
    size = fitting(network, _EXAMPLES)
    if transformation == "colour" and all(_grey(x) for x in inputs.split(size)):
        raise NotApplicable("the images are grey: there is no colour to change")
    # What comes in from outside is black: the darkest value there is, as zeros are grey where pixels are
    # standardised.
    black = torch.stack([x.amin(dim=(0, 2, 3)) for x in network.inputs.split(size)]).amin(0)
    alpha = torch.linspace(0, 1, _POINTS, dtype=torch.float64, device="cpu")
    either_way = (
        [(-a, a) for a in alpha.tolist()] if sweep == "folded" else [(2 * a - 1,) for a in alpha.tolist()]
    )
    rows, first, answer = [], 0, answers(network)
    with torch.no_grad():
        for x, y in zip(inputs.split(size), labels.split(size), strict=True):
            columns = []
            for point, shares in enumerate(either_way):
                if len(network.labels) >= _MANY:
                    changed = [_alternately(change, x, shares, black, first + point)]
                else:
                    changed = [change(x, share, black) for share in set(shares)]
                columns.append(torch.stack([answer(images) == y for images in changed]))
            rows.append(torch.stack([hits.to(wide(hits.device)).mean(0) for hits in columns], 1))
            first += len(y)
    return {"alpha": alpha, "right": torch.cat(rows)}


def _alternately(change: Change, images: Tensor, shares: Sequence[float], black: Tensor, turn: int) -> Tensor:
    """The images changed by one share after the other, beginning with that of number `turn`."""
    changed = torch.empty_like(images)
    for number, share in enumerate(shares):
        some = slice((number + turn) % len(shares), None, len(shares))
        if len(images[some]):
            changed[some] = change(images[some], share, black)
    return changed


def _grey(images: Tensor) -> bool:
    return images.shape[1] != 3 or torch.equal(images, images[:, :1].expand_as(images))


def _rotation(images: Tensor, share: float, black: Tensor) -> Tensor:
    """Turned by share · 90° about the centre."""
    angle = share * math.pi / 2
    cos, sin = math.cos(angle), math.sin(angle)
    height, width = images.shape[2:]
    # In the units of a grid, where either side is 2 long.
    turn = [[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]]
    return _moved(images, turn, black)


def _horizontal(images: Tensor, share: float, black: Tensor) -> Tensor:
    """Shifted by share · half the width."""
    return _moved(images, [[1.0, 0.0, -share], [0.0, 1.0, 0.0]], black)


def _vertical(images: Tensor, share: float, black: Tensor) -> Tensor:
    """Shifted by share · half the height."""
    return _moved(images, [[1.0, 0.0, 0.0], [0.0, 1.0, -share]], black)


def _moved(images: Tensor, back: list[list[float]], black: Tensor) -> Tensor:
    """Bilinear values where `back` takes each pixel, `black` (channels,) beyond the edges."""
    floor = black[:, None, None]
    where = images.new_tensor(back).expand(len(images), 2, 3)
    grid = F.affine_grid(where, list(images.shape), align_corners=False)
    return F.grid_sample(images - floor, grid, padding_mode="zeros", align_corners=False) + floor


def _colour(images: Tensor, share: float, black: Tensor) -> Tensor:
    """Hues turned by share · 180°: colours turned about the axis of greys, which keeps brightness.

    Linear in the pixels, so that it does not matter by which mean and deviation they were standardised, as
    long as all channels have the same.
    """
    angle = share * math.pi
    cross = images.new_tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)
    unit, ones = torch.eye(3, dtype=images.dtype, device=images.device), images.new_ones(3, 3)
    turn = math.cos(angle) * unit + (1 - math.cos(angle)) / 3 * ones + math.sin(angle) * cross
    return torch.einsum("ij,njhw->nihw", turn, images)


TRANSFORMATIONS: dict[str, Change] = {
    "rotation": _rotation,
    "horizontal": _horizontal,
    "vertical": _vertical,
    "colour": _colour,
}
"""By name: images, a share of the largest change from −1 to 1, and what is black, to images."""
