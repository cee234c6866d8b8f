"""Reconstructions of convolutional autoencoders (paper 004): the narrower the bottleneck, the worse.

Each autoencoder keeps `channels` numbers per square of `stride` × `stride` pixels. It is convolutional all
through, so one that was trained on crops works on images of any size.

A reconstruction is smooth, and so are large parts of some photographs: a set of those stays similar to any
reconstruction. The last dial reaches every level on every set: it decodes codes that noise was added to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.testbed.degradations.networks import (
    in_fixed_batches,
    mean_colour,
    one_thread,
    remembering,
    seeded,
    train,
)
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["BOTTLENECKS", "Autoencoder", "fit"]

BOTTLENECKS = ((4, 16), (4, 4), (4, 2), (16, 4))
"""(stride, channels), widest first: 1/3, 1/12, 1/24 and 1/192 of the values of a colour image.

Fine steps where paper 004's levels lie: what a reconstruction loses changes in kind from one bottleneck to
the next, and a large step would show as a jump of every model's error between two neighbouring levels."""
_CROP = 64
"""Side of the training crops of larger images: two squares of the widest stride."""
_PIXELS = 600 * 32 * 32 * 32
"""Pixels that each autoencoder is trained on, however large the images are."""
_BATCH = 32
_WIDTH = 16
_SHAKE = 3.0
"""Noise of the last dial, in standard deviations of the code."""


class Autoencoder(nn.Module):
    """Images in [0, 1] to reconstructions of the same shape, in [0, 1]."""

    def __init__(self, image_channels: int, stride: int, channels: int) -> None:
        super().__init__()
        self.stride = stride
        self.channels = channels
        halvings = int(log2(stride)) - 1
        widths = [_WIDTH * 2 ** min(i, 2) for i in range(halvings + 1)]
        # Squares of 2 × 2 pixels become channels first: the layers at full resolution would cost the most.
        encoder: list[nn.Module] = [nn.PixelUnshuffle(2), _convolution(4 * image_channels, widths[0])]
        for narrow, wide in pairwise(widths):
            encoder += [nn.SiLU(), _convolution(narrow, wide, stride=2)]
        decoder: list[nn.Module] = [_convolution(channels, widths[-1])]
        for narrow, wide in reversed(list(pairwise(widths))):
            decoder += [nn.SiLU(), nn.Upsample(scale_factor=2), _convolution(wide, narrow)]
        self.encoder = nn.Sequential(*encoder, nn.SiLU(), nn.Conv2d(widths[-1], channels, 1))
        self.decoder = nn.Sequential(
            *decoder, nn.SiLU(), _convolution(widths[0], 4 * image_channels), nn.PixelShuffle(2)
        )
        self.mean = nn.Parameter(torch.full((image_channels, 1, 1), 0.5))

    def code(self, images: Tensor) -> Tensor:
        """(n, channels of the bottleneck, squares down, squares across)."""
        height, width = images.shape[-2:]
        # Sides are filled up to whole squares by repeating the edge, which works for any size.
        whole = pad(images, (0, -width % self.stride, 0, -height % self.stride), mode="replicate")
        code: Tensor = self.encoder(whole * 2 - 1)
        return code

    def forward(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """(n, channels, height, width) to the same; `noise`, if given, is added to the code."""
        height, width = images.shape[-2:]
        code = self.code(images)
        raw: Tensor = self.decoder(code if noise is None else code + noise)[..., :height, :width] + self.mean
        # Clipping has no gradient, so training must see past it.
        return raw if self.training else raw.clamp(0, 1)


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial for each bottleneck, the widest first, then the one with noise in the code."""
    with one_thread():
        networks = [_trained(task, stride, channels) for stride, channels in BOTTLENECKS]
        return [*map(_reconstructing, networks), _shaken(networks[0], task)]


def _trained(task: DegradationTask, stride: int, channels: int) -> Autoencoder:
    image_channels, height, width = task.images.shape[1:]
    seed = derive_seed("autoencoder", task.seed, stride, channels)
    network = seeded(lambda: Autoencoder(image_channels, stride, channels), seed).to(task.images.device)
    for convolution in network.modules():
        if isinstance(convolution, nn.Conv2d):  # a fifth faster in this layout
            convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        # Training begins at the mean colour instead of spending its first steps on finding it.
        network.mean.copy_(mean_colour(task.images)[:, None, None] / 255)

    def loss(images: Tensor, rows: Tensor) -> Tensor:
        difference: Tensor = network(images) - images
        return difference.square().mean()

    train(
        network,
        loss,
        task.images,
        crop=_CROP,
        batch=_BATCH,
        steps=max(20, _PIXELS // (_BATCH * min(_CROP, height) * min(_CROP, width))),
        rate=3e-3,
        generator=torch.Generator("cpu").manual_seed(seed),
    )
    return network


def _name(network: Autoencoder) -> str:
    return f"autoencoder-{network.stride}x{network.channels}"


def _reconstructing(network: Autoencoder) -> Dial:
    reconstruct = remembering(lambda images: in_fixed_batches(network, images))

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return images.lerp(reconstruct(images), strength)

    return Dial(_name(network), turn, network.state_dict())


def _shaken(network: Autoencoder, task: DegradationTask) -> Dial:
    key = derive_seed("autoencoder code", task.seed)
    with torch.no_grad():
        some = task.images[:_BATCH, :, :_CROP, :_CROP].float() / 255
        scale = _SHAKE * network.code(some).std(dim=(0, 2, 3), keepdim=True)

    @remembering
    def reconstruct(images: Tensor, rows: Tensor) -> Tensor:
        shape = network.code(images[:1]).shape[1:]
        return in_fixed_batches(network, images, normal_noise(key, rows, shape).to(images.device) * scale)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return images.lerp(reconstruct(images, rows), strength)

    return Dial(f"{_name(network)}-noise", turn, {**network.state_dict(), "noise": scale})
