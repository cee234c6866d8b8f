"""Parameters as one vector, so that a step or a draw of noise is one operation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["as_one_vector", "fill_normal"]

_CHUNK = 2**22
"""Numbers drawn at a time, whatever the device, so that they are the same on all."""


def as_one_vector(parameters: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Their values in one vector, and a second vector of which the parameters are parts from now on."""
    values = torch.cat([p.detach().flatten() for p in parameters])
    weights, start = values.clone(), 0
    for parameter in parameters:
        parameter.data = weights[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return values, weights


def fill_normal(vector: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a vector on any device with standard normal numbers drawn on the CPU; gives the vector."""
    for piece in vector.split(_CHUNK):
        piece.copy_(torch.randn(len(piece), generator=generator, device=generator.device))
    return vector
