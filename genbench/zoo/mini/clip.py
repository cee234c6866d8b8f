"""CLIP in small, put together from open_clip's own classes. Importing it takes two seconds."""

from __future__ import annotations

import genbench._torchvision  # noqa: F401  before open_clip, which imports torchvision

# isort: split
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from open_clip.modified_resnet import AttentionPool2d, ModifiedResNet
from torch import nn

from genbench.zoo.mini.sizes import IMAGE_SIZE, ClipSize, ClipVitSize
from genbench.zoo.mini.tokens import CONTEXT

__all__ = ["build_clip"]

_TEXT_HEAD = 32
"""Channels per head of attention in text towers."""

_VIT_HEAD = 8
_PATCH = 4
"""Pixels on each side of a token: 64 tokens an image. With 8, letters and their accents share tokens."""

_POSITION = 0.5
"""Spread of the table of positions at the start, about that of patches: a quieter one drowns in colours."""

_POOL_HEAD = 16
"""Channels per head of the attention that pools."""

_LEAST_STEM = 4
"""Fewest channels in the stem of a modified ResNet: half of a narrow width cannot tell colours apart."""


def build_clip(size: ClipSize | ClipVitSize, vocabulary_size: int) -> CLIP:
    """A CLIP with a modified ResNet or a vision transformer, randomly initialised."""
    model = CLIP(
        embed_dim=size.feature_width,
        vision_cfg=_vit(size) if isinstance(size, ClipVitSize) else _resnet(size),
        text_cfg=CLIPTextCfg(
            context_length=CONTEXT,
            vocab_size=vocabulary_size,
            width=size.text.width,
            heads=size.text.width // _TEXT_HEAD,
            layers=size.text.layers,
        ),
    )
    if isinstance(size, ClipSize):
        _fit_to_32_pixels(model.visual, size)
    else:
        nn.init.normal_(model.visual.positional_embedding, std=_POSITION)
    return model


def _resnet(size: ClipSize) -> CLIPVisionCfg:
    return CLIPVisionCfg(
        layers=(1, 1, 1, 1), width=size.width, head_width=_POOL_HEAD, image_size=2 * IMAGE_SIZE
    )


def _vit(size: ClipVitSize) -> CLIPVisionCfg:
    return CLIPVisionCfg(
        layers=size.layers,
        width=size.width,
        head_width=_VIT_HEAD,
        patch_size=_PATCH,
        image_size=IMAGE_SIZE,
        pool_type="avg",
    )


def _fit_to_32_pixels(tower: ModifiedResNet, size: ClipSize) -> None:
    """The tower of a 64-pixel image without the pooling of its stem: 32 pixels become 16, 16, 8 and 4.

    CLIP's own strides would leave a single pixel for the attention pool. The fourth stage, which has most of
    the weights, is left out, 4 x 4 pixels are pooled, and the stem has no fewer than 4 channels.
    """
    stem = max(size.width // 2, _LEAST_STEM)
    tower.avgpool = nn.Identity()
    tower.conv1 = nn.Conv2d(3, stem, 3, stride=2, padding=1, bias=False)
    tower.conv2 = nn.Conv2d(stem, stem, 3, padding=1, bias=False)
    tower.conv3 = nn.Conv2d(stem, size.width, 3, padding=1, bias=False)
    tower.bn1, tower.bn2 = nn.BatchNorm2d(stem), nn.BatchNorm2d(stem)
    tower.layer4 = nn.Identity()
    channels = 16 * size.width
    tower.attnpool = AttentionPool2d(IMAGE_SIZE // 8, channels, channels // _POOL_HEAD, size.feature_width)
    tower.init_parameters()
