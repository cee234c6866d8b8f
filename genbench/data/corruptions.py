"""The corruptions of CIFAR-10-C on batches of images, five severities each (Hendrycks & Dietterich 2019).

Strengths are those published for images of 32 × 32 pixels. Blurs are measured in pixels, whatever the size of
the image; zooms, elastic shifts and pixels in shares of its side, as published. Frost, which is a photograph
there, is drawn from noise here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.errors import UserError
from genbench.keys import derive_seed

__all__ = ["CORRUPTIONS", "FAMILIES", "SEVERITIES", "corrupt"]

SEVERITIES = (1, 2, 3, 4, 5)
_LEAST_SIDE = 8
"""Smaller images leave the blurs and JPEG nothing to work on."""


def corrupt(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """`images` (n, 1 or 3, height, width) after one corruption.

    Parameters
    ----------
    images : uint8, or floats in [0, 1]; the result is of the same kind.
    severity : 1 to 5.
    seed : what is random is a function of seed, name, severity and the shape of `images`.
    """
    if name not in CORRUPTIONS:
        raise UserError(f"unknown corruption {name!r}; there are {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise UserError(f"severity {severity} of {name} is not one of 1, 2, 3, 4, 5")
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < _LEAST_SIDE:
        raise UserError(
            f"corruptions take images (n, 1 or 3, height, width) of at least {_LEAST_SIDE} × {_LEAST_SIDE} "
            f"pixels, not {tuple(images.shape)}"
        )
    if not len(images):
        return images.clone()
    bytes_given = images.dtype == torch.uint8
    values = images.double() / 255 if bytes_given else images.double()
    generator = torch.Generator().manual_seed(derive_seed("corruption", name, severity, seed))
    changed = CORRUPTIONS[name](values, severity - 1, generator).clamp(0, 1)
    # Published images are cut to whole bytes, not rounded; the sum keeps 3.9999999 from becoming 3.
    return (changed * 255 + 1e-6).byte() if bytes_given else changed.to(images.dtype)


# -- noise -------------------------------------------------------------------------------------------


def _gaussian_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    deviation = (0.04, 0.06, 0.08, 0.09, 0.10)[level]
    return images + deviation * torch.randn(images.shape, generator=generator, dtype=images.dtype)


def _shot_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    photons = (500, 250, 100, 75, 50)[level]
    return torch.poisson(images * photons, generator=generator) / photons


def _impulse_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[level]
    draws = torch.rand(images.shape, generator=generator, dtype=images.dtype)
    salted = torch.where(draws < share / 2, 1.0, images)
    return torch.where((draws >= share / 2) & (draws < share), 0.0, salted)


# -- blur --------------------------------------------------------------------------------------------


def _defocus_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A disk, smoothed by a Gaussian of 3 × 3 pixels; mirrored at the edges."""
    radius, smoothing = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[level]
    place = torch.arange(-1, 2, dtype=images.dtype)
    disk = (place[:, None].square() + place.square() <= radius**2).to(images.dtype)
    bell = torch.exp(-place.square() / (2 * smoothing**2))
    bell = (bell[:, None] * bell) / (bell.sum() ** 2)
    kernel = F.conv2d(F.pad(disk / disk.sum(), (2, 2, 2, 2))[None, None], bell[None, None])
    flat = F.pad(images.flatten(0, 1)[:, None], (2, 2, 2, 2), mode="reflect")
    return F.conv2d(flat, kernel).view(images.shape)


def _motion_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Along a line at −45° to 45°."""
    radius, deviation = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[level]
    angle = (torch.rand(len(images), generator=generator, dtype=images.dtype) - 0.5) * (math.pi / 2)
    return _streaked(images, radius, deviation, angle)


def _streaked(images: Tensor, radius: int, deviation: float, angle: Tensor) -> Tensor:
    """Half a Gaussian along a line at angle (n,), as ImageMagick's motion blur; edges repeat."""
    count, _, height, width = images.shape
    steps = torch.arange(2 * radius + 1, dtype=images.dtype)
    weights = torch.exp(-steps.square() / (2 * deviation**2))
    weights /= weights.sum()
    rows, cols = torch.arange(height)[:, None], torch.arange(width)
    blurred = torch.zeros_like(images)
    each = torch.arange(count)[:, None, None]
    for step, weight in zip(steps.tolist(), weights.tolist(), strict=True):
        down = torch.ceil(step * torch.sin(angle) - 0.5).long()[:, None, None]
        right = torch.ceil(step * torch.cos(angle) - 0.5).long()[:, None, None]
        row = (rows + down).clamp(0, height - 1)
        col = (cols + right).clamp(0, width - 1)
        blurred += weight * images.permute(0, 2, 3, 1)[each, row, col].permute(0, 3, 1, 2)
    return blurred


def _glass_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A Gaussian, then pixels that change places with a neighbour above or to the left, then the Gaussian.

    From the last pixel to the first, one after the other, so that some wander far; once or twice over.
    """
    deviation, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[level]
    count, _, height, width = images.shape
    down, right = _smoother(height, deviation), _smoother(width, deviation)
    # (height, width, channels, n): all images exchange the same pixel at once, each with its own neighbour.
    pixels = (down @ images @ right.T).permute(2, 3, 1, 0).contiguous()
    places = (rounds, height, width, 2, count)
    steps = torch.randint(-1, 1, places, generator=generator)
    each = torch.arange(count)
    for time in range(rounds):
        for row in range(height - 1, 1, -1):
            for column in range(width - 1, 1, -1):
                up, left = steps[time, row, column]
                here = pixels[row, column].clone()
                pixels[row, column] = pixels[row + up, column + left, :, each].T
                pixels[row + up, column + left, :, each] = here.T
    return down @ pixels.permute(3, 2, 0, 1) @ right.T


def _zoom_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The mean of the image and of 1.00, 1.01, … times larger ones about its centre."""
    steps = (6, 11, 16, 21, 26)[level]
    larger = [_magnified(images, 1 + step / 100) for step in range(steps)]
    return torch.stack([images, *larger]).mean(dim=0)


def _magnified(images: Tensor, factor: float) -> Tensor:
    """The middle of the images, `factor` times larger, as large as they were."""
    height, width = images.shape[2:]
    x = (torch.arange(width, dtype=torch.float64) - (width - 1) / 2) / factor + (width - 1) / 2
    y = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2) / factor + (height - 1) / 2
    places = torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=2)
    return _sampled(images, places.expand(len(images), -1, -1, -1), mirror_centre=True)


# -- weather -----------------------------------------------------------------------------------------


def _snow(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A whitened image under streaks of falling flakes and the same flakes turned by 180°."""
    mean, spread, size, sparse, radius, deviation, kept = (
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95), (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9), (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    )[level]  # fmt: skip
    count, _, height, width = images.shape
    noise = torch.randn(count, 1, height, width, generator=generator, dtype=torch.float64)
    flakes = _magnified(mean + spread * noise, size)
    flakes = torch.where(flakes < sparse, 0.0, flakes.clamp(max=1))
    # Within 45° of straight down.
    angle = (torch.rand(count, generator=generator, dtype=torch.float64) + 0.5) * (math.pi / 2)
    falling = _streaked(flakes, radius, deviation, angle)
    white = torch.maximum(images, 1.5 * _grey(images) + 0.5)
    return kept * images + (1 - kept) * white + falling + falling.flip(2, 3)


def _grey(images: Tensor) -> Tensor:
    """(n, 1, height, width) luma of the channels (ITU-R 601)."""
    if images.shape[1] == 1:
        return images
    return (images * images.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(dim=1, keepdim=True)


def _frost(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A darkened image behind ice."""
    kept, ice = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[level]
    return kept * images + ice * _ice(images, generator)


def _ice(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crystals in [0, 1]: needles in three directions, 60° apart, on a cloudy ground, a little blue.

    Published frost is a piece of one of five photographs. What they have in common is here: brightness in
    patches, and thin bright lines of few directions.
    """
    count, channels, height, width = images.shape
    side = 2 ** math.ceil(math.log2(max(height, width)))
    ground = _plasma(count, side, 2.5, generator)[:, None, :height, :width]
    first = torch.rand(count, generator=generator, dtype=torch.float64) * math.pi
    needles = torch.zeros(count, 1, height, width, dtype=torch.float64)
    for turn in range(3):
        seeds = torch.rand(count, 1, height, width, generator=generator, dtype=torch.float64) > 0.9
        lines = _streaked(seeds.double(), 6, 3.0, first + turn * math.pi / 3)
        needles = torch.maximum(needles, lines / lines.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-12))
    ice = (0.15 + 0.55 * ground + 0.5 * needles).clamp(max=1)
    tint = images.new_tensor([0.9, 0.96, 1.0] if channels == 3 else [1.0])
    return ice * tint[:, None, None]


def _fog(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[level]
    count, _, height, width = images.shape
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    side = 2 ** math.ceil(math.log2(max(height, width)))
    clouds = _plasma(count, side, decay, generator)[:, None, :height, :width]
    return (images + thickness * clouds) * brightest / (brightest + thickness)


def _plasma(count: int, side: int, decay: float, generator: torch.Generator) -> Tensor:
    """(count, side, side) clouds in [0, 1] by the diamond-square algorithm on a torus."""
    clouds = torch.zeros(count, side, side, dtype=torch.float64)
    step, wobble = side, 100.0

    def noisy(total: Tensor) -> Tensor:
        noise = 2 * torch.rand(total.shape, generator=generator, dtype=torch.float64) - 1
        return total / 4 + wobble**2 * noise

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        squares = corners + corners.roll(-1, 1)
        clouds[:, half::step, half::step] = noisy(squares + squares.roll(-1, 2))
        centres = clouds[:, half::step, half::step]
        corners = clouds[:, ::step, ::step]
        across = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        clouds[:, ::step, half::step] = noisy(across)
        down = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        clouds[:, half::step, ::step] = noisy(down)
        step, wobble = half, wobble / decay
    clouds -= clouds.amin(dim=(1, 2), keepdim=True)
    return clouds / clouds.amax(dim=(1, 2), keepdim=True)


def _brightness(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Value V of HSV plus a constant: with hue and saturation kept, every channel scales with V' / V."""
    added = (0.05, 0.1, 0.15, 0.2, 0.3)[level]
    value = images.amax(dim=1, keepdim=True)
    brighter = (value + added).clamp(max=1)
    return torch.where(value > 0, images * brighter / value.clamp(min=1e-12), brighter)


def _contrast(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    kept = (0.75, 0.5, 0.4, 0.3, 0.15)[level]
    mean = images.mean(dim=(2, 3), keepdim=True)
    return (images - mean) * kept + mean


# -- digital -----------------------------------------------------------------------------------------


def _pixelate(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[level]
    height, width = images.shape[2:]
    values = (images * 255).round()
    for source, target in (
        ((height, width), (int(height * share), int(width * share))),
        ((int(height * share), int(width * share)), (height, width)),
    ):
        # Rounded after each direction, as Pillow does.
        values = (values @ _boxes(source[1], target[1]).T + 0.5).floor()
        values = (_boxes(source[0], target[0]) @ values + 0.5).floor()
    return values / 255


def _boxes(source: int, target: int) -> Tensor:
    """(target, source) weights of Pillow's BOX filter: the mean of the pixels whose centres are inside."""
    scale = source / target
    centre = (torch.arange(target, dtype=torch.float64) + 0.5)[:, None] * scale
    offset = (torch.arange(source) + 0.5 - centre) / max(scale, 1.0)
    inside = ((offset > -0.5) & (offset <= 0.5)).double()
    return inside / inside.sum(dim=1, keepdim=True)


def _jpeg(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    import numpy as np
    from PIL import Image

    quality = (80, 65, 58, 50, 40)[level]
    found = []
    for image in (images * 255).round().byte().permute(0, 2, 3, 1).numpy():
        file = BytesIO()
        Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).save(
            file, "JPEG", quality=quality
        )
        found.append(np.array(Image.open(file)).reshape(image.shape))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).double() / 255


def _elastic(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A random affine map of three points near the centre, then a smooth random field of shifts."""
    field, smoothing, shift = (
        (0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03),
    )[level]  # fmt: skip
    count, _, height, width = images.shape
    side = min(height, width)
    centre = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    arm = side // 3
    corners = centre + torch.tensor([[arm, arm], [arm, -arm], [-arm, -arm]], dtype=torch.float64)
    draws = 2 * torch.rand(count, 3, 2, generator=generator, dtype=torch.float64) - 1
    moved = corners + draws * shift * side
    # The map that takes each moved corner back: (x, y, 1) -> (x, y).
    back = torch.linalg.solve(torch.cat([moved, torch.ones(count, 3, 1)], dim=2), corners.expand(count, 3, 2))
    x, y = torch.arange(width, dtype=torch.float64), torch.arange(height, dtype=torch.float64)
    places = torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=2)
    affine = torch.cat([places, torch.ones(height, width, 1)], dim=2).flatten(0, 1) @ back
    turned = _sampled(images, affine.view(count, height, width, 2), mirror_centre=True)
    noise = 2 * torch.rand(count, 2, height, width, generator=generator, dtype=torch.float64) - 1
    smooth = _smoother(height, smoothing * side) @ noise @ _smoother(width, smoothing * side).T
    return _sampled(turned, places + field * side * smooth.permute(0, 2, 3, 1), mirror_centre=False)


def _smoother(side: int, deviation: float) -> Tensor:
    """(side, side) weights of a Gaussian filter, cut at 3 deviations and mirrored at the edges."""
    from scipy.ndimage import gaussian_filter1d

    unit = torch.eye(side, dtype=torch.float64)
    if not deviation:
        return unit
    return torch.from_numpy(gaussian_filter1d(unit.numpy(), deviation, axis=0, mode="reflect", truncate=3.0))


def _sampled(images: Tensor, places: Tensor, *, mirror_centre: bool) -> Tensor:
    """Bilinear values at `places` (n, h, w, 2), x before y, in pixels.

    Beyond the edge the image is mirrored, about the centre of the last pixel or about its outer edge.
    """
    size = torch.tensor([images.shape[3], images.shape[2]], dtype=torch.float64)
    grid = 2 * places / (size - 1) - 1 if mirror_centre else (2 * places + 1) / size - 1
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=mirror_centre)


FAMILIES: dict[str, dict[str, Callable[[Tensor, int, torch.Generator], Tensor]]] = {
    "noise": {
        "gaussian_noise": _gaussian_noise, "shot_noise": _shot_noise, "impulse_noise": _impulse_noise,
    },
    "blur": {
        "defocus_blur": _defocus_blur, "glass_blur": _glass_blur, "motion_blur": _motion_blur,
        "zoom_blur": _zoom_blur,
    },
    "weather": {
        "snow": _snow, "frost": _frost, "fog": _fog, "brightness": _brightness, "contrast": _contrast,
    },
    "digital": {"pixelate": _pixelate, "jpeg": _jpeg, "elastic": _elastic},
}  # fmt: skip
"""Corruptions by family, as the paper groups them."""

CORRUPTIONS = {name: function for family in FAMILIES.values() for name, function in family.items()}
