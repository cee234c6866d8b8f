"""The embedded families: mini-clip and mini-efficientnet, pretrained on glyphs that are in no suite.

`python -m genbench.zoo.mini.pretrain` trains them again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from genbench.plugin.offers import Backbone, BackboneRequest
from genbench.zoo.mini.files import available
from genbench.zoo.mini.sizes import CLIP_SIZES, EFFICIENTNET_SIZES, IMAGE_SIZE, ClipSize, EfficientNetSize

if TYPE_CHECKING:
    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES"]


def _load(name: str, request: BackboneRequest) -> LoadedBackbone:
    from genbench.zoo.mini.load import load

    return load(name, request)


def _record(family: str, key: str, size: ClipSize | EfficientNetSize, summary: str) -> Backbone:
    name = f"{family}:{key}"
    return Backbone(
        name=name,
        family=family,
        summary=summary,
        weight_count=size.weight_count,
        feature_width=size.feature_width,
        image_size=IMAGE_SIZE,
        source="embedded",
        load=partial(_load, name),
        available=partial(available, name),
    )


BACKBONES: list[Backbone] = [
    *(
        _record("mini-clip", key, clip, f"CLIP in small, modified ResNet of width {clip.width}")
        for key, clip in CLIP_SIZES.items()
    ),
    *(
        _record("mini-efficientnet", key, net, f"EfficientNet-{key} in small")
        for key, net in EFFICIENTNET_SIZES.items()
    ),
]
"""All 13, smallest first in each family."""
