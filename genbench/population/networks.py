"""Architectures of the populations (SPEC.md section 2), each with dropout.

NiN, FCN and a small ResNet; SimpleCNN and ResNetV2 of 002.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from genbench.errors import UserError
from genbench.population.step_types import Shape

__all__ = ["ARCHITECTURES", "NetworkInNetwork", "Shape", "make_network", "plan_network"]

ARCHITECTURES = ("nin", "fcn", "resnet", "simplecnn", "resnetv2")


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


class SimpleCnn(nn.Module):
    """`depth` 3 × 3 convolutions, each with ReLU and 2 × 2 max pooling, then dropout and a linear head.

    Widths are width, 2·width, 4·width, … 002 says no more of its own than "a three-layer CNN": depth 3.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = [shape.channels] + [shape.width * 2**i for i in range(shape.depth)]
        self.convs = nn.ModuleList(
            nn.Conv2d(sizes[i], sizes[i + 1], 3, padding=1) for i in range(shape.depth)
        )
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.dropouts = nn.ModuleList(nn.Dropout(shape.dropout) for _ in range(1 if shape.dropout else 0))
        places = (shape.height >> shape.depth) * (shape.image_width >> shape.depth)
        if not places:
            raise UserError(
                f"a simplecnn of depth {shape.depth} halves images {shape.depth} times, and nothing is left "
                f"of {shape.height} × {shape.image_width} pixels; use a smaller depth"
            )
        self.head = nn.Linear(sizes[-1] * places, shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        for conv in self.convs:
            images = self.pool(self.relu(conv(images)))
        hidden = images.flatten(1)
        for dropout in self.dropouts:
            hidden = dropout(hidden)
        logits: Tensor = self.head(hidden)
        return logits


class ResNetV2(nn.Module):
    """The pre-activation ResNet of He et al. 2016b for small images: depth = 6·n + 2 layers, 32 in 002.

    A 3 × 3 stem, three stages of n blocks with width, 2·width and 4·width filters (16, 32, 64 as published),
    the second and third halving the image, then batch norm, ReLU, average pooling and a linear head.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        blocks, left = divmod(shape.depth - 2, 6)
        if left or not blocks:
            raise UserError(f"a resnetv2 has 6·n + 2 layers: depth 8, 14, 20, 26, 32, …, not {shape.depth}")
        sizes = [shape.width] + [shape.width * 2**stage for stage in range(3) for _ in range(blocks)]
        self.stem = nn.Conv2d(shape.channels, shape.width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(
            _PreActivationBlock(sizes[i], sizes[i + 1], stride=2 if sizes[i + 1] > sizes[i] else 1)
            for i in range(3 * blocks)
        )
        self.bn = nn.BatchNorm2d(sizes[-1])
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropouts = nn.ModuleList(nn.Dropout(shape.dropout) for _ in range(1 if shape.dropout else 0))
        self.head = nn.Linear(sizes[-1], shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) -> logits (n, classes)."""
        hidden = self.stem(images)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.pool(self.relu(self.bn(hidden))).flatten(1)
        for dropout in self.dropouts:
            hidden = dropout(hidden)
        logits: Tensor = self.head(hidden)
        return logits


class _PreActivationBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.relu = nn.ReLU()
        changes = stride != 1 or inputs != width
        self.shortcut = nn.Conv2d(inputs, width, 1, stride=stride, bias=False) if changes else None

    def forward(self, images: Tensor) -> Tensor:
        active = self.relu(self.bn1(images))
        # As He et al. have it, a shortcut that changes the shape starts behind the first activation.
        kept = images if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(self.relu(self.bn2(self.conv1(active)))) + kept
        return out


def make_network(shape: Shape, seed: int) -> nn.Module:
    """A network on the CPU with freshly drawn weights that depend on `shape` and `seed` alone."""
    # Drawn there whatever device it will be trained on: the weights are then the same.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        return _built(shape)


def plan_network(shape: Shape) -> nn.Module:
    """The modules of a network without numbers, to be filled with weights that are there already."""
    with torch.device("meta"):
        return _built(shape)


def _built(shape: Shape) -> nn.Module:
    if shape.architecture == "nin":
        if not shape.dropout:
            return NetworkInNetwork(shape.depth, shape.width, shape.channels, shape.classes)
        return DropoutNetworkInNetwork(shape.depth, shape.width, shape.channels, shape.classes, shape.dropout)
    if shape.architecture == "fcn":
        inputs = shape.channels * shape.height * shape.image_width
        return FullyConnected(inputs, shape.depth, shape.width, shape.classes, shape.dropout)
    if shape.architecture == "resnet":
        return ResidualNetwork(shape.depth, shape.width, shape.channels, shape.classes, shape.dropout)
    if shape.architecture == "simplecnn":
        return SimpleCnn(shape)
    if shape.architecture == "resnetv2":
        return ResNetV2(shape)
    raise UserError(
        f"unknown architecture {shape.architecture!r}; there are {', '.join(map(repr, ARCHITECTURES))}"
    )
