"""The sizes of the embedded families: plain numbers, free of torch so that listings stay fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "IMAGE_SIZE",
    "SIZES",
    "ClipSize",
    "ClipVitSize",
    "EfficientNetSize",
    "RegNetSize",
    "Size",
    "TextSize",
]

IMAGE_SIZE = 32


@dataclass(frozen=True)
class TextSize:
    """The text tower of a CLIP: open_clip's transformer over the words of a name."""

    width: int
    layers: int


@dataclass(frozen=True)
class ClipSize:
    """One mini-clip: the arguments of open_clip's modified ResNet and of its text tower."""

    width: int
    """Channels of the first residual stage; every further one has twice as many, and blocks give out 4 times
    the channels of their stage."""
    feature_width: int
    """Width of the space that images and names share."""
    weight_count: int
    """Weights of the image tower."""
    text: TextSize = TextSize(32, 2)


@dataclass(frozen=True)
class ClipVitSize:
    """One mini-clip-vit: the arguments of open_clip's vision transformer and of its text tower."""

    width: int
    layers: int
    feature_width: int
    """Width of the space that images and names share."""
    weight_count: int
    """Weights of the image tower."""
    text: TextSize = TextSize(32, 2)


@dataclass(frozen=True)
class EfficientNetSize:
    """One mini-efficientnet; its widths and depths follow from efficientnet_pytorch's own coefficients."""

    feature_width: int
    weight_count: int
    """Weights without the classification head."""


@dataclass(frozen=True)
class RegNetSize:
    """One mini-regnet: the arguments of timm's rule for the widths of all blocks (2003.13678, Eqs. 2-4).

    Block j of `depth` would be w0 + wa·j wide; it gets the nearest w0·wm^k, rounded to a multiple of 8, and
    blocks of one width are a stage.
    """

    depth: int
    w0: int
    wa: float
    wm: float
    group_size: int
    """Channels per group of the 3 x 3 convolutions."""
    feature_width: int
    """Channels of the last convolution, which looks at single pixels."""
    weight_count: int
    """Weights without the classification head."""


Size = ClipSize | ClipVitSize | EfficientNetSize | RegNetSize


SIZES: Mapping[str, Mapping[str, Size]] = {
    "mini-clip": {
        "short2": ClipSize(2, 64, 8_360),
        "short3": ClipSize(3, 64, 16_112),
        "short4": ClipSize(4, 64, 26_356),
        "short5": ClipSize(5, 64, 39_092),
        "short6": ClipSize(6, 64, 54_320),
        "short7": ClipSize(7, 64, 72_040),
        "short8": ClipSize(8, 64, 92_252),
        "short9": ClipSize(9, 64, 114_956),
    },
    "mini-clip-vit": {
        "w24": ClipVitSize(24, 2, 64, 18_816),
        "w32": ClipVitSize(32, 2, 64, 31_232),
        "w40": ClipVitSize(40, 2, 64, 46_720),
        "w48": ClipVitSize(48, 2, 64, 65_280),
        "w64": ClipVitSize(64, 2, 64, 111_616),
        "w56": ClipVitSize(56, 3, 64, 125_272),
        "w96": ClipVitSize(96, 2, 64, 241_152),
    },
    "mini-efficientnet": {
        "b0": EfficientNetSize(192, 7_749),
        "b1": EfficientNetSize(192, 14_539),
        "b2": EfficientNetSize(212, 17_291),
        "b3": EfficientNetSize(230, 20_050),
        "b4": EfficientNetSize(268, 26_456),
        "b5": EfficientNetSize(308, 49_149),
        "b6": EfficientNetSize(346, 59_427),
        "b7": EfficientNetSize(384, 99_024),
    },
    "mini-regnet": {
        "x1": RegNetSize(4, 8, 6, 1.4, 4, 96, 11_624),
        "x2": RegNetSize(4, 8, 10, 1.8, 8, 112, 20_168),
        "x3": RegNetSize(6, 8, 7, 1.8, 8, 128, 32_344),
        "x4": RegNetSize(7, 8, 8, 2.0, 8, 160, 53_608),
        "x5": RegNetSize(7, 16, 10, 1.7, 8, 192, 85_704),
        "x6": RegNetSize(6, 16, 20, 2.0, 8, 224, 148_008),
    },
}
"""Family to the key of a size to that size; smallest first, the two editions of mini-clip in turn."""
