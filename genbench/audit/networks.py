"""Networks of the audit: fully connected ones without a norm, with batch norm or layer norm, and NiN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genbench.audit.images import CLASSES
from genbench.audit.step_types import AuditShape
from genbench.population.networks import make_network
from genbench.population.step_types import Shape

__all__ = ["make_audit_network"]

_SIDE = 8
_EPS = 1e-12
"""Of layer norms: so small that it never counts (1e-5 would move outputs by 5 % under Exp++)."""


class _NormedFullyConnected(nn.Module):
    """Hidden layers of `width` units, each with a norm and ReLU, then a linear head.

    With layer norm: without trained scale or shift, and with a head that is not trained. Then the function
    does not change when the trained weights of a layer are multiplied by a number.
    """

    def __init__(self, depth: int, width: int, norm: str) -> None:
        super().__init__()
        sizes = [_SIDE**2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(depth))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width)
            if norm == "batch"
            else nn.LayerNorm(width, eps=_EPS, elementwise_affine=False)
            for _ in range(depth)
        )
        self.relu = nn.ReLU()
        self.head = nn.Linear(width, CLASSES)
        if norm == "layer":
            self.head.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, 1, 8, 8) -> logits (n, classes)."""
        hidden = images.flatten(1)
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            hidden = self.relu(norm(layer(hidden)))
        logits: Tensor = self.head(hidden)
        return logits


def make_audit_network(shape: AuditShape, seed: int) -> nn.Module:
    """A network on the CPU with weights that depend on `shape` and `seed` alone."""
    if not shape.norm:
        whole = Shape(shape.architecture, shape.depth, shape.width, 0, 1, _SIDE, _SIDE, CLASSES)
        return make_network(whole, seed)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        return _NormedFullyConnected(shape.depth, shape.width, shape.norm)
