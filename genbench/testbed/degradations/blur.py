"""Gaussian blur, whose deviation at full strength is the side of the image: little is left but the mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from genbench.plugin.offers import DegradationTask, Dial
from genbench.subject.precision import wide

__all__ = ["blurred", "fit"]


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial; nothing is learnt from the images."""
    return [Dial("blur", _turn)]


def _turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
    # Squared, so that the first pixel of deviation has its share of the dial.
    return blurred(images, strength**2 * min(images.shape[-2:])).float()


def blurred(images: Tensor, deviation: float) -> Tensor:
    """Gaussian means around every pixel, in float64 where the device has it."""
    height, width = images.shape[-2:]
    # One product with a matrix for each direction takes any deviation at the same cost. In float64, the last
    # bits (which depend on the batch) are too small to move a rounding to 8 bits.
    wider = images.to(wide(images.device))
    columns, lines = _weights(height, deviation, wider), _weights(width, deviation, wider)
    return columns @ wider @ lines.T


def _weights(side: int, deviation: float, like: Tensor) -> Tensor:
    """(side, side) weights of each pixel in each blurred one; they sum to 1 at the edges too."""
    place = torch.arange(side, dtype=like.dtype, device=like.device)
    weights = torch.exp(-0.5 * ((place[:, None] - place) / max(deviation, 1e-6)).square())
    return weights / weights.sum(dim=1, keepdim=True)
