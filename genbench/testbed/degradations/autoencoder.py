"""Reconstructions of a convolutional autoencoder (paper 004) whose bottleneck narrows steadily.

An image is cut into squares of s × s pixels, and each becomes a code of C = channels · s² values: its
coordinates along the principal axes of the training squares, of variances l_1 ≥ l_2 ≥ … (the rows of W). The
bottleneck is noise of variance t on every value of the code, which lets ½ sum_i log(1 + l_i/t) nats pass. The
decoder is the best linear one, followed by a small convolutional network r that restores what it can:

    x̂ = mean + y + n · r(y),   y = Wᵀ (m ∘ code),   m_i = l_i / (l_i + t),   t = t_0^(1 − n) · t_1^n

W and m are where gradient descent on a linear autoencoder with such a bottleneck ends, taken in closed form
(Baldi and Hornik 1989); r is trained by gradient descent on noisy codes, with t drawn anew for each batch.
Images are reconstructed from codes without noise, as a variational autoencoder's are.

The strength of the dial is n, how narrow the bottleneck is, from 0 to 1. As it grows, fine detail goes first
and all else fades after it, so that each level is made of less than the one above it. Nothing is blended with
the image itself: that leaves a sharp ghost of it, which networks read so well that they may err less at a
lower SSIM (the first version did that).

Large parts of some pictures are plain, and stay similar to any reconstruction. The last part of the dial
reaches every level on every set: there some of the noise is left in the code.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_shuffle, pixel_unshuffle

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.subject.precision import precise, wide
from genbench.testbed.degradations.networks import (
    crops,
    in_fixed_batches,
    mean_colour,
    one_thread,
    seeded,
    train,
)
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["Autoencoder", "fit"]

_CROP = 64
"""Side of the training crops of larger images."""
_PIXELS = 300 * 32 * 64 * 64
"""Pixels that the decoder is trained on, however large the images are."""
_SQUARES = 32
"""Squares that the code is learnt from, for each of its values."""
_BATCH = 32
_WIDTH = 32
_WIDEST = 1e-6
"""Variance of the noise at strength 0: less than that of rounding to 8 bits."""
_NARROWEST = 4.0
"""Variance of the noise where the bottleneck is narrowest, in variances of the code's first value."""
_NARROWING = 0.875
"""Share of the dial in which the bottleneck narrows; in the rest, noise stays in the code."""
_SHAKE = 3.0
"""That noise at full strength, in standard deviations of the code."""


class Autoencoder(nn.Module):
    """Images in [0, 1] to reconstructions of the same shape, in [0, 1]."""

    axes: Tensor
    """(C, C): W, a row for each value of the code."""
    variances: Tensor
    """(C,): l."""
    mean: Tensor
    """(channels, 1, 1)."""

    def __init__(self, image_channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        size = image_channels * side * side
        for name, shape in (("axes", (size, size)), ("variances", (size,)), ("mean", (image_channels, 1, 1))):
            self.register_buffer(name, torch.zeros(shape))
        # Squares of 4 × 4 pixels are channels here: layers at full resolution would cost the most.
        inside = 16 * image_channels
        last = nn.Conv2d(_WIDTH, inside, 3, padding=1)
        # Training begins at the best linear autoencoder.
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
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
        squares: Tensor = pixel_unshuffle(whole - self.mean, self.side)
        return squares

    def noise(self, narrowness: float) -> Tensor:
        """t, the variance of the noise in the bottleneck."""
        narrowest = _NARROWEST * self.variances[0].clamp(min=_WIDEST)
        variance: Tensor = _WIDEST * (narrowest / _WIDEST) ** narrowness
        return variance

    def linear(self, narrowness: float) -> Tensor:
        """(C, C): squares to the best linear reconstruction of them, Wᵀ diag(m) W."""
        kept = self.variances / (self.variances + self.noise(narrowness))
        return (self.axes.T * kept) @ self.axes

    def forward(
        self, squares: Tensor, narrowness: float, linear: Tensor, left: Tensor | None = None
    ) -> Tensor:
        """Reconstructions (n, channels, height, width), both sides whole squares.

        Parameters
        ----------
        squares : as the method of that name gives them, or with noise on them: it is white along any axes.
        linear : as the method of that name gives it.
        left : noise that is left in the code, as it shows in squares.
        """
        coarse = conv2d(squares, linear[:, :, None, None])
        image = pixel_shuffle(coarse if left is None else coarse + left, self.side)
        raw: Tensor = image + narrowness * self.restore(image) + self.mean
        # Clipping has no gradient, so training must see past it.
        return raw if self.training else raw.clamp(0, 1)


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial: the bottleneck narrows to next to nothing, then noise stays in the code."""
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
    network.mean.copy_(mean_colour(images)[:, None, None] / 255)
    size, device = len(network.axes), images.device
    moments = torch.zeros(size, size, dtype=wide(device), device=device)
    count = 0
    while count < _SQUARES * size:
        rows = torch.randint(len(images), (_BATCH,), generator=generator, device="cpu")
        values = network.squares(crops(images, rows, _CROP, generator)).transpose(0, 1).flatten(1)
        values = values.to(moments.dtype)
        moments += values @ values.T
        count += values.shape[1]
    variances, axes = torch.linalg.eigh(precise(moments) / count)
    network.axes.copy_(axes.T.flip(0))
    network.variances.copy_(variances.flip(0).clamp(min=0))


def _train_decoder(network: Autoencoder, images: Tensor, generator: torch.Generator) -> None:
    height, width = images.shape[-2:]

    def loss(images: Tensor, rows: Tensor) -> Tensor:
        narrowness = float(torch.rand((), generator=generator, device="cpu"))
        squares = network.squares(images)
        noise = torch.randn(squares.shape, generator=generator, device="cpu").to(squares.device)
        noisy = squares + network.noise(narrowness).sqrt() * noise
        found: Tensor = network(noisy, narrowness, network.linear(narrowness))
        return (found[..., : images.shape[2], : images.shape[3]] - images).square().mean()

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


def _dial(network: Autoencoder, key: int) -> Dial:
    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        shake = _SHAKE * max(0.0, strength - _NARROWING) / (1 - _NARROWING)
        with torch.no_grad(), one_thread():
            narrowness = min(strength / _NARROWING, 1.0)
            linear = network.linear(narrowness)
            decode = (network.axes.T * network.variances.sqrt() * shake)[:, :, None, None]

            def reconstruct(part: Tensor, noise: Tensor | None = None) -> Tensor:
                left = None if noise is None else conv2d(noise, decode)
                found: Tensor = network(network.squares(part), narrowness, linear, left)[..., :height, :width]
                return found

            if not shake:
                return in_fixed_batches(reconstruct, images)
            noise = normal_noise(key, rows, network.squares(images[:1]).shape[1:])
            return in_fixed_batches(reconstruct, images, noise.to(images.device))

    return Dial("autoencoder", turn, network.state_dict())
