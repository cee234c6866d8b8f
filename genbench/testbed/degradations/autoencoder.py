"""Reconstructions of a convolutional autoencoder whose bottleneck narrows value by value.

An image is cut into squares of s × s pixels. The encoder turns each into a code of C = channels · s² values in
an order of their own: the first k are the best k for every k at once. The decoder makes an image of them again,
whichever are left:

    code = W (x − mean),   x̂_k = D_k(Wᵀ m_k code),   m_k = (1, …, 1, k − ⌊k⌋, 0, …, 0),
    D_k(y) = mean + y + (1 − k/C) · r(y)

W is learnt in closed form: the best linear autoencoder of any width k is the span of the k leading principal axes
of its training squares (Baldi and Hornik 1989). r is a small convolutional network, trained by gradient descent
to restore what is lost with k drawn anew for each batch (nested dropout: Rippel, Gelbart and Adams 2014).

The strength of the dial is the narrowness of the bottleneck, k = C^(1 − strength). So every level holds less of
an image than the one above it, and none holds a ghost of the sharp original, as blending with it would (the
method's version 1, `blended_autoencoder`): networks read ghosts well, and err less at a lower SSIM.

Large parts of some pictures are plain, and stay similar to any reconstruction. The last part of the dial reaches
every level on every set: it adds noise to the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_shuffle, pixel_unshuffle

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.subject.precision import precise, wide
from genbench.testbed.degradations.networks import crops, in_fixed_batches, one_thread, seeded, train
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["Autoencoder", "fit"]

_CROP = 64
"""Side of the training crops of larger images."""
_PIXELS = 300 * 32 * 64 * 64
"""Pixels that the decoder is trained on, however large the images are."""
_SQUARES = 32
"""Squares that the code is learnt from, for each of its values."""
_AT_ONCE = 2**26
"""Pixel values of which a mean is taken at once."""
_BATCH = 32
_WIDTH = 32
_NARROWING = 0.875
"""Share of the dial in which the bottleneck narrows; in the rest the code, then of one value, gets noise."""
_SHAKE = 3.0
"""Noise at full strength, in standard deviations of the code."""


class Autoencoder(nn.Module):
    """Images in [0, 1] to reconstructions of the same shape, in [0, 1], from as much of a code as is kept."""

    basis: Tensor
    """(C, C): W, a row for each value of the code."""
    spread: Tensor
    """(C,) standard deviations of the code."""
    mean: Tensor
    """(channels, 1, 1)."""

    def __init__(self, image_channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        size = image_channels * side * side
        self.size = size
        for name, shape in (("basis", (size, size)), ("spread", (size,)), ("mean", (image_channels, 1, 1))):
            self.register_buffer(name, torch.zeros(shape))
        # Squares of 4 × 4 pixels are channels here: layers at full resolution would cost the most.
        inside = 16 * image_channels
        last = nn.Conv2d(_WIDTH, inside, 3, padding=1)
        # Training begins at the best linear autoencoder.
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.restore = nn.Sequential(
            nn.PixelUnshuffle(4),
            nn.Conv2d(inside, _WIDTH, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1),
            nn.SiLU(),
            last,
            nn.PixelShuffle(4),
        )

    def squares(self, images: Tensor) -> Tensor:
        """(n, C, squares down, squares across): pixels less the mean colour."""
        height, width = images.shape[-2:]
        # Sides are filled up to whole squares by repeating the edge, which works for any size.
        whole = pad(images, (0, -width % self.side, 0, -height % self.side), mode="replicate")
        return pixel_unshuffle(whole - self.mean, self.side)

    def forward(self, images: Tensor, kept: float, noise: Tensor | None = None) -> Tensor:
        """(n, channels, height, width) to the same, from the first `kept` values of the code, a last one in part.

        `noise`, if given, is added to the code: (n, C, squares down, squares across).
        """
        height, width = images.shape[-2:]
        some = self.basis[: ceil(kept)] if noise is None else self.basis
        share = (kept - torch.arange(len(some), device=images.device)).clamp(0, 1)
        code = conv2d(self.squares(images), some[:, :, None, None]) * share.view(-1, 1, 1)
        if noise is not None:
            code = code + noise
        coarse = pixel_shuffle(conv2d(code, some.T[:, :, None, None]), self.side)
        raw = (coarse + (1 - kept / self.size) * self.restore(coarse))[..., :height, :width] + self.mean
        # Clipping has no gradient, so training must see past it.
        return raw if self.training else raw.clamp(0, 1)


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial: the bottleneck narrows from all values of the code to one, then noise is added."""
    channels, height, width = task.images.shape[1:]
    seed = derive_seed("autoencoder", task.seed)
    generator = torch.Generator("cpu").manual_seed(seed)
    side = 16 if min(height, width) > _CROP else 8
    with one_thread():
        network = seeded(lambda: Autoencoder(channels, side), seed).to(task.images.device)
        _learn_code(network, task.images, generator)
        _train_decoder(network, task.images, generator)
    return [_dial(network, derive_seed("autoencoder code", task.seed))]


def _learn_code(network: Autoencoder, images: Tensor, generator: torch.Generator) -> None:
    """Mean colour and principal axes of squares anywhere in the images."""
    network.mean.copy_(_mean(images)[:, None, None] / 255)
    size, device = network.size, images.device
    moments = torch.zeros(size, size, dtype=wide(device), device=device)
    count = 0
    while count < _SQUARES * size:
        rows = torch.randint(len(images), (_BATCH,), generator=generator, device="cpu")
        values = network.squares(crops(images, rows, _CROP, generator)).transpose(0, 1).flatten(1)
        values = values.to(moments.dtype)
        moments += values @ values.T
        count += values.shape[1]
    variances, axes = torch.linalg.eigh(precise(moments) / count)
    network.basis.copy_(axes.T.flip(0))
    network.spread.copy_(variances.flip(0).clamp(min=0).sqrt())


def _train_decoder(network: Autoencoder, images: Tensor, generator: torch.Generator) -> None:
    height, width = images.shape[-2:]

    def loss(crops: Tensor, rows: Tensor) -> Tensor:
        drawn = float(torch.rand((), generator=generator, device="cpu"))
        difference: Tensor = network(crops, network.size**drawn) - crops
        return difference.square().mean()

    train(
        network,
        loss,
        images,
        crop=_CROP,
        batch=_BATCH,
        steps=max(20, _PIXELS // (_BATCH * min(_CROP, height) * min(_CROP, width))),
        rate=3e-3,
        generator=generator,
    )


def _mean(images: Tensor) -> Tensor:
    """(channels,) means of uint8 images, a few of which are floats at a time."""
    if images.numel() <= _AT_ONCE:
        return images.float().mean(dim=(0, 2, 3))
    # On a CPU the same bits as above, where images have several channels: there, too, one follows the other.
    total = torch.zeros(images.shape[1], dtype=torch.float32, device=images.device)
    for part in images.split(max(1, _AT_ONCE // (64 * images[0].numel()))):
        for image in part.float().sum(dim=(2, 3)):
            total += image
    return total / (images.numel() // images.shape[1])


def _dial(network: Autoencoder, key: int) -> Dial:
    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        narrow, shake = min(strength / _NARROWING, 1.0), max(0.0, strength - _NARROWING) / (1 - _NARROWING)
        kept = network.size ** (1 - narrow)
        with torch.no_grad():
            if not shake:
                return in_fixed_batches(lambda part: network(part, kept), images)
            shape = network.squares(images[:1]).shape[1:]
            scale = _SHAKE * shake * network.spread.view(-1, 1, 1)
            noise = normal_noise(key, rows, shape).to(images.device) * scale
            return in_fixed_batches(lambda part, shaken: network(part, kept, shaken), images, noise)

    return Dial("autoencoder", turn, network.state_dict())
