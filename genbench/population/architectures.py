"""Networks of the populations (SPEC.md section 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genbench.errors import UserError

__all__ = ["NetworkInNetwork", "build"]


class NetworkInNetwork(nn.Module):
    """NiN as in 001: `depth` blocks of one strided 3 × 3 and two 1 × 1 convolutions, then a 1 × 1 head.

    Every convolution is followed by batch norm and ReLU; the logits are the global average pool of the
    head, so they are never negative.
    """

    def __init__(self, depth: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        sizes = [channels] + [width] * depth
        self.blocks = nn.ModuleList(_Block(sizes[i], sizes[i + 1]) for i in range(depth))
        self.conv = nn.Conv2d(width, classes, 1)
        self.bn = nn.BatchNorm2d(classes)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        for block in self.blocks:
            images = block(images)
        logits: Tensor = self.pool(self.relu(self.bn(self.conv(images)))).flatten(1)
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width, 1)
        self.bn3 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        images = self.relu(self.bn1(self.conv1(images)))
        images = self.relu(self.bn2(self.conv2(images)))
        out: Tensor = self.relu(self.bn3(self.conv3(images)))
        return out


def build(architecture: str, *, depth: int, width: int, channels: int, classes: int, seed: int) -> nn.Module:
    """A network with freshly drawn weights that depend on `seed` alone."""
    if architecture != "nin":
        raise UserError(f"unknown architecture {architecture!r}; this version of genbench has 'nin'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NetworkInNetwork(depth, width, channels, classes)
