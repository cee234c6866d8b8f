"""Architectures of the populations (SPEC.md section 2): NiN, FCN and a small ResNet, each with dropout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genbench.errors import UserError

__all__ = ["ARCHITECTURES", "NetworkInNetwork", "Shape", "make_network"]

ARCHITECTURES = ("nin", "fcn", "resnet")


@dataclass(frozen=True)
class Shape:
    """Everything that decides which tensors a network has."""

    architecture: str
    depth: int
    width: int
    dropout: float
    channels: int
    height: int
    image_width: int
    classes: int


class NetworkInNetwork(nn.Module):
    """NiN as in 001: `depth` blocks of one strided 3 × 3 and two 1 × 1 convolutions, then a 1 × 1 head.

    Every convolution is followed by batch norm and ReLU; the logits are the global average pool of the
    head, so they are never negative.
    """

    def __init__(self, depth: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        sizes = [channels] + [width] * depth
        self.blocks = nn.ModuleList(_NinBlock(sizes[i], sizes[i + 1]) for i in range(depth))
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


class _NinBlock(nn.Module):
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


class DropoutNetworkInNetwork(NetworkInNetwork):
    """`NetworkInNetwork` with dropout after every block but the last."""

    def __init__(self, depth: int, width: int, channels: int, classes: int, dropout: float) -> None:
        super().__init__(depth, width, channels, classes)
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(depth - 1))

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        for place, block in enumerate(self.blocks):
            images = block(images)
            if place < len(self.dropouts):
                images = self.dropouts[place](images)
        logits: Tensor = self.pool(self.relu(self.bn(self.conv(images)))).flatten(1)
        return logits


class FullyConnected(nn.Module):
    """`depth` hidden layers of `width` units with ReLU, then a linear head (000, 003)."""

    def __init__(self, inputs: int, depth: int, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        sizes = [inputs] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(depth))
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(depth if dropout else 0))
        self.relu = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        hidden = images.flatten(1)
        for place, layer in enumerate(self.hidden):
            hidden = self.relu(layer(hidden))
            if place < len(self.dropouts):
                hidden = self.dropouts[place](hidden)
        logits: Tensor = self.head(hidden)
        return logits


class ResidualNetwork(nn.Module):
    """A 3 × 3 stem and `depth` basic residual blocks, the second and later ones halving the image.

    Widths are width, 2·width, 4·width, then no more; a block that changes the shape has a 1 × 1 shortcut.
    """

    def __init__(self, depth: int, width: int, channels: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        sizes = [width] + [width * 2 ** min(i, 2) for i in range(depth)]
        self.blocks = nn.ModuleList(
            _ResidualBlock(sizes[i], sizes[i + 1], stride=2 if 0 < i < 3 else 1) for i in range(depth)
        )
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(1 if dropout else 0))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        hidden = self.relu(self.stem_bn(self.stem(images)))
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.pool(hidden).flatten(1)
        for dropout in self.dropouts:
            hidden = dropout(hidden)
        logits: Tensor = self.head(hidden)
        return logits


class _ResidualBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        changes = stride != 1 or inputs != width
        self.shortcut = nn.Conv2d(inputs, width, 1, stride=stride, bias=False) if changes else nn.Identity()
        self.shortcut_bn = nn.BatchNorm2d(width) if changes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images)))))
        out: Tensor = self.relu(hidden + self.shortcut_bn(self.shortcut(images)))
        return out


def make_network(shape: Shape, seed: int) -> nn.Module:
    """A network with freshly drawn weights that depend on `shape` and `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if shape.architecture == "nin":
            if not shape.dropout:
                return NetworkInNetwork(shape.depth, shape.width, shape.channels, shape.classes)
            return DropoutNetworkInNetwork(
                shape.depth, shape.width, shape.channels, shape.classes, shape.dropout
            )
        if shape.architecture == "fcn":
            inputs = shape.channels * shape.height * shape.image_width
            return FullyConnected(inputs, shape.depth, shape.width, shape.classes, shape.dropout)
        if shape.architecture == "resnet":
            return ResidualNetwork(shape.depth, shape.width, shape.channels, shape.classes, shape.dropout)
    raise UserError(
        f"unknown architecture {shape.architecture!r}; there are {', '.join(map(repr, ARCHITECTURES))}"
    )
