"""One glyph image from a seed: colours, position, scale, rotation, and a gradient with clutter behind.

On the way to a pixel there are only sums, products and comparisons of doubles, and sines rounded well above
their last bit, so the same draws give the same bytes on any machine.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from genbench.data.glyphs.outline import DOMAINS, FONTS, SUBSAMPLES, Segments, coverage, outline

__all__ = ["SIDE", "SPLITS", "domain_of", "draw"]

SIDE = 32
SPLITS = {"train": 0, "heldout": 1, "pretrain": 2}
"""Each split has its own stream of random draws."""

Doubles = NDArray[np.float64]

_SEED = 20_004
_SMALLEST, _LARGEST = 20.0, 27.0  # the letter's longer side, in pixels
_MOST_DEGREES = 15
_COLOUR_STEP = 4  # fewer colours make the file smaller, and no eye sees the difference
_LUMA = np.array([0.299, 0.587, 0.114])
_LEAST_CONTRAST = 60.0
_CLUTTER_CONTRAST = 45.0
_MOST_CLUTTER = 5


def domain_of(index: int) -> int:
    """The font family of the image with this index: the families take turns."""
    return index % len(DOMAINS)


def draw(code: int, split: str, index: int) -> NDArray[np.uint8]:
    """Image `index` of a letter in a split, (3, SIDE, SIDE); depends on nothing but these three."""
    rng = np.random.Generator(np.random.PCG64([_SEED, SPLITS[split], code, index]))
    style = FONTS[DOMAINS[domain_of(index)]][int(rng.random() * 4)]
    letter = _placed(outline(style, code), rng)
    ink, paper, paper_end = _colours(rng)
    image = _gradient(paper, paper_end, rng)
    for _ in range(int(rng.random() * (_MOST_CLUTTER + 1))):
        image = _blend(image, _shade(paper, ink, rng), coverage(_stroke(rng), SIDE))
    image = _blend(image, ink, coverage(letter, SIDE))
    return (np.floor(image / _COLOUR_STEP + 0.5) * _COLOUR_STEP).clip(0, 255).astype(np.uint8)


def _between(low: float, high: float, rng: np.random.Generator) -> float:
    return low + (high - low) * float(rng.random())


def _placed(segments: Segments, rng: np.random.Generator) -> Segments:
    """The outline scaled, turned and moved to a place where it is whole."""
    size = _between(_SMALLEST, _LARGEST, rng)
    degrees = int(rng.random() * (2 * _MOST_DEGREES + 1)) - _MOST_DEGREES
    # Rounded, because the last bit of a sine differs between C libraries.
    cos, sin = (round(f(math.radians(degrees)), 9) * size for f in (math.cos, math.sin))
    x, y = segments[:, 0::2], segments[:, 1::2]
    turned = np.stack([x * cos - y * sin, x * sin + y * cos], axis=-1)
    low, high = turned.min(axis=(0, 1)), turned.max(axis=(0, 1))
    slack = np.maximum(SIDE - (high - low), 0)
    turned += rng.random(2) * slack - low
    return turned.reshape(-1, 4)


def _colours(rng: np.random.Generator) -> tuple[Doubles, ...]:
    """Ink, and the two ends of the background; the ink is darker, or lighter, than both by a margin."""
    while True:
        ink, paper, paper_end = rng.random((3, 3)) * 255
        luma = [float((colour * _LUMA).sum()) for colour in (ink, paper, paper_end)]
        first, second = luma[0] - luma[1], luma[0] - luma[2]
        if first * second > 0 and min(abs(first), abs(second)) >= _LEAST_CONTRAST:
            return ink, paper, paper_end


def _gradient(start: Doubles, end: Doubles, rng: np.random.Generator) -> Doubles:
    """A linear blend of two colours across the image, in a random direction."""
    corners = rng.random((2, 2))
    steps = np.arange(SIDE) / (SIDE - 1)
    top = corners[0, 0] + (corners[0, 1] - corners[0, 0]) * steps
    bottom = corners[1, 0] + (corners[1, 1] - corners[1, 0]) * steps
    share = top[None, :] + (bottom - top)[None, :] * steps[:, None]
    image: Doubles = start[:, None, None] + (end - start)[:, None, None] * share
    return image


def _shade(paper: Doubles, ink: Doubles, rng: np.random.Generator) -> Doubles:
    """A colour for clutter: some way from the paper, but not as far towards the ink."""
    shift = (rng.random(3) - 0.5) * 2 * _CLUTTER_CONTRAST
    return (paper + (ink - paper) * (0.35 * float(rng.random())) + shift).clip(0, 255)


def _stroke(rng: np.random.Generator) -> Segments:
    """A four-sided scrap with one corner anywhere in the image, long and thin or compact."""
    corner = rng.random(2) * SIDE
    along, across = (rng.random((2, 2)) - 0.5) * np.array([[1.2 * SIDE], [0.35 * SIDE]])
    points = np.stack([corner, corner + along, corner + along + across, corner + across])
    return np.hstack([points, np.roll(points, -1, axis=0)])


def _blend(image: Doubles, colour: Doubles, covered: NDArray[np.int64]) -> Doubles:
    share = covered / SUBSAMPLES**2
    return image + (colour[:, None, None] - image) * share
