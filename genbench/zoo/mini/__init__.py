"""The embedded families, pretrained on glyphs that are in no suite.

`python -m genbench.zoo.mini.pretrain` trains them again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from genbench.plugin.offers import Backbone, BackboneRequest
from genbench.zoo.mini.files import available
from genbench.zoo.mini.sizes import IMAGE_SIZE, SIZES, ClipSize, ClipVitSize, RegNetSize, Size

if TYPE_CHECKING:
    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES"]

_LONGER = ("mini-clip:short2", "mini-clip:short3", "mini-clip:short4", "mini-clip:short5", "mini-clip-vit:")
"""How the names begin of those that were pretrained a second time, for longer."""


def _load(name: str, request: BackboneRequest) -> LoadedBackbone:
    from genbench.zoo.mini.load import load

    return load(name, request)


def _summary(key: str, size: Size) -> str:
    match size:
        case ClipSize():
            return f"CLIP in small, modified ResNet of width {size.width} and 3 stages"
        case ClipVitSize():
            return f"CLIP in small, vision transformer of width {size.width} and {size.layers} layers"
        case RegNetSize():
            return f"RegNetX in small, {size.depth} blocks up to {size.feature_width} channels"
        case _:
            return f"EfficientNet-{key} in small"


def _record(family: str, key: str, size: Size) -> Backbone:
    name = f"{family}:{key}"
    return Backbone(
        name=name,
        family=family,
        summary=_summary(key, size),
        weight_count=size.weight_count,
        feature_width=size.feature_width,
        image_size=IMAGE_SIZE,
        source="embedded",
        load=partial(_load, name),
        available=partial(available, name),
        version="2" if name.startswith(_LONGER) else "1",
    )


BACKBONES: list[Backbone] = [
    _record(family, key, size) for family, sizes in SIZES.items() for key, size in sizes.items()
]
"""All of them, in the order of `SIZES`."""
