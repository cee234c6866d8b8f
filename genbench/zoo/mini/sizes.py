"""The sizes of the two embedded families: plain numbers, free of torch so that listings stay fast."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLIP_SIZES", "EFFICIENTNET_SIZES", "IMAGE_SIZE", "ClipSize", "EfficientNetSize"]

IMAGE_SIZE = 32


@dataclass(frozen=True)
class ClipSize:
    """One mini-clip: the arguments of open_clip's modified ResNet and of its text tower."""

    width: int
    """Channels of the first residual stage; the last has 32 times as many."""
    feature_width: int
    """Width of the space that images and names share."""
    weight_count: int
    """Weights of the image tower."""
    blocks: tuple[int, int, int, int] = (1, 1, 1, 1)
    """Bottleneck blocks per stage."""
    text_width: int = 64
    text_layers: int = 2


@dataclass(frozen=True)
class EfficientNetSize:
    """One mini-efficientnet; its widths and depths follow from efficientnet_pytorch's own coefficients."""

    feature_width: int
    weight_count: int
    """Weights without the classification head."""


CLIP_SIZES = {
    "rn4": ClipSize(width=4, feature_width=64, weight_count=91_010),
    "rn6": ClipSize(width=6, feature_width=96, weight_count=203_004),
    "rn8": ClipSize(width=8, feature_width=96, weight_count=351_100),
    "rn12": ClipSize(width=12, feature_width=128, weight_count=780_302),
    "rn16": ClipSize(width=16, feature_width=128, weight_count=1_362_200),
}

EFFICIENTNET_SIZES = {
    "b0": EfficientNetSize(192, 7_749),
    "b1": EfficientNetSize(192, 14_539),
    "b2": EfficientNetSize(212, 17_291),
    "b3": EfficientNetSize(230, 20_050),
    "b4": EfficientNetSize(268, 26_456),
    "b5": EfficientNetSize(308, 49_149),
    "b6": EfficientNetSize(346, 59_427),
    "b7": EfficientNetSize(384, 99_024),
}
