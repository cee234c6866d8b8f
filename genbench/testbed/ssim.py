"""Structural similarity of batches of images (Wang, Bovik, Sheikh and Simoncelli 2004)."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import conv2d

__all__ = ["WINDOW", "ssim"]

WINDOW = 11
"""Side of the Gaussian window, in pixels; no image may be smaller."""
_SIGMA = 1.5
_C1 = 0.01**2  # (K1 · range)²
_C2 = 0.03**2  # (K2 · range)²
_VALUES = 2**17
"""Pixel values worked on at a time: a larger part leaves the processor's caches and is slower."""


@torch.no_grad()
def ssim(first: Tensor, second: Tensor) -> Tensor:
    """Mean structural similarity of each pair of images: 1 for equal images, lower for worse ones.

    With local means u, variances v and covariance c under an 11 × 11 Gaussian window of sigma 1.5,

        SSIM = mean of (2·u1·u2 + C1)(2·c + C2) / ((u1² + u2² + C1)(v1 + v2 + C2)),
        C1 = .01², C2 = .03²,

    over channels and over the windows that lie wholly inside the image: scikit-image pads by reflection and
    then crops what the padding touched, which is the same. Computed in float32, or in float64 if both
    batches are float64; without gradients.

    Parameters
    ----------
    first, second : (n, channels, height, width) floats in [0, 1], each side at least 11.

    Returns
    -------
    (n,) similarities.
    """
    _check(first, second)
    double = first.dtype == second.dtype == torch.float64
    dtype = torch.float64 if double else torch.float32
    if not len(first):
        return first.new_empty(0, dtype=dtype)
    # A multiple of four images fills the vector registers of the convolution: four maps each, 16 at a time.
    size = 4 * max(1, _VALUES // (4 * first.shape[1:].numel()))
    parts = [
        _ssim(a.to(dtype), b.to(dtype)) for a, b in zip(first.split(size), second.split(size), strict=True)
    ]
    return torch.cat(parts)


def _ssim(first: Tensor, second: Tensor) -> Tensor:
    # With s = x1 + x2 and t = x1 − x2, and their means and variances,
    #     SSIM = (1 − 2·ut² / (us² + ut² + 2·C1)) (1 − 2·vt / (vs + vt + 2·C2)),
    # so that four filtered maps do the work of five. The rest is memory traffic, hence in place.
    maps = first.new_empty(4, *first.shape)
    total, difference, total_square, difference_square = maps
    torch.add(first, second, out=total)
    torch.sub(first, second, out=difference)
    # A variance is a small difference of large squares: centring each image keeps float32 exact enough.
    centre = total.mean(dim=(-2, -1), keepdim=True)
    total -= centre
    torch.mul(total, total, out=total_square)
    torch.mul(difference, difference, out=difference_square)
    total, difference, total_square, difference_square = _local_means(maps)
    total_variance = total_square.addcmul_(total, total, value=-1)
    difference_variance = difference_square.addcmul_(difference, difference, value=-1)
    total += centre
    difference *= difference
    structure_scale = total_variance.add_(difference_variance).add_(2 * _C2)
    luminance_scale = total.mul_(total).add_(difference).add_(2 * _C1)
    one = first.new_ones(())
    structure = torch.addcdiv(one, difference_variance, structure_scale, value=-2)
    luminance = torch.addcdiv(one, difference, luminance_scale, value=-2)
    return structure.mul_(luminance).mean(dim=(-3, -2, -1))


def _local_means(maps: Tensor) -> Tensor:
    """Means under the window, of every image and channel: the Gaussian along rows, then along columns."""
    taps = _taps(maps.dtype, maps.device)
    # All images as channels of one: the depthwise convolution is several times faster on a CPU than a
    # batch of one-channel convolutions.
    flat = maps.reshape(1, -1, *maps.shape[-2:])
    channels = flat.shape[1]
    flat = conv2d(flat, taps.view(1, 1, 1, WINDOW).expand(channels, -1, -1, -1), groups=channels)
    flat = conv2d(flat, taps.view(1, 1, WINDOW, 1).expand(channels, -1, -1, -1), groups=channels)
    return flat.view(*maps.shape[:-2], *flat.shape[-2:])


@cache
def _taps(dtype: torch.dtype, device: torch.device) -> Tensor:
    # On the CPU first: not every device has float64.
    offsets = torch.arange(WINDOW, dtype=torch.float64, device="cpu") - WINDOW // 2
    taps = torch.exp(-offsets.square() / (2 * _SIGMA**2))
    return (taps / taps.sum()).to(dtype).to(device)


def _check(first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape or first.dim() != 4:
        raise ValueError(
            "ssim compares two batches of one shape (n, channels, height, width), "
            f"not {tuple(first.shape)} with {tuple(second.shape)}"
        )
    if not (first.is_floating_point() and second.is_floating_point()):
        raise TypeError(
            f"ssim takes floats in [0, 1], not {first.dtype} and {second.dtype}; divide raw images by 255"
        )
    height, width = first.shape[-2:]
    if min(height, width) < WINDOW:
        raise ValueError(
            f"ssim needs images of at least {WINDOW} × {WINDOW} pixels, the size of its window, "
            f"not {height} × {width}; enlarge the images first"
        )
