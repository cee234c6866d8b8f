"""The networks, put together from open_clip's, efficientnet_pytorch's and timm's own classes."""

from __future__ import annotations

import genbench._torchvision  # noqa: F401  before open_clip, which imports torchvision

# isort: split
from efficientnet_pytorch import EfficientNet
from efficientnet_pytorch.utils import BlockDecoder, GlobalParams, efficientnet_params
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from open_clip.modified_resnet import AttentionPool2d, ModifiedResNet
from timm.models.regnet import RegNet, RegNetCfg
from torch import Tensor, nn

from genbench.zoo.mini.sizes import IMAGE_SIZE, SIZES, ClipSize, ClipVitSize, RegNetSize
from genbench.zoo.mini.tokens import CONTEXT

__all__ = ["MiniEfficientNet", "build_classifier", "build_clip"]

_TEXT_HEAD = 32
"""Channels per head of attention in text towers."""

_VIT_HEAD = 8
_PATCH = 4
"""Pixels on each side of a token: 64 tokens an image. With 8, letters and their accents share tokens."""

_POSITION = 0.5
"""Spread of the table of positions at the start, about that of patches: a quieter one drowns in colours."""

_LEAST_STEM = 4
"""Fewest channels in the stem of a short CLIP: half of a narrow tower's width cannot tell colours apart."""

_WIDTH = 0.15
"""Every width of EfficientNet-b0 is multiplied by this; b1 to b7 then scale as EfficientNet does."""

# EfficientNet-b0 without its last two stages and with one block in each of the others, in b0's own widths.
# Two stages halve the image; with the stem, 32 pixels become 4.
_BLOCKS = [
    "r1_k3_s11_e1_i32_o16_se0.25",
    "r1_k3_s22_e4_i16_o24_se0.25",
    "r1_k3_s11_e4_i24_o40_se0.25",
    "r1_k3_s22_e4_i40_o80_se0.25",
    "r1_k3_s11_e4_i80_o112_se0.25",
]


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
    layers = (*size.blocks, 1)[:4]
    return CLIPVisionCfg(
        layers=layers, width=size.width, head_width=size.head_width, image_size=2 * IMAGE_SIZE
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
    """The tower of a 64-pixel image without the pooling of its stem: 32 pixels become 16, 16, 8, 4 and 2.

    CLIP's own strides would leave a single pixel for the attention pool. A short tower has no fourth stage,
    which has most of the weights, pools 4 x 4 pixels, and does not see through fewer than 4 channels.
    """
    tower.avgpool = nn.Identity()
    if len(size.blocks) == 3:
        stem = max(size.width // 2, _LEAST_STEM)
        tower.conv1 = nn.Conv2d(3, stem, 3, stride=2, padding=1, bias=False)
        tower.conv2 = nn.Conv2d(stem, stem, 3, padding=1, bias=False)
        tower.conv3 = nn.Conv2d(stem, size.width, 3, padding=1, bias=False)
        tower.bn1, tower.bn2 = nn.BatchNorm2d(stem), nn.BatchNorm2d(stem)
        channels = 16 * size.width
        tower.layer4 = nn.Identity()
        tower.attnpool = AttentionPool2d(
            IMAGE_SIZE // 8, channels, channels // size.head_width, size.feature_width
        )
        tower.init_parameters()


class MiniEfficientNet(nn.Module):
    """An EfficientNet b0 to b7 in small, up to its pooled features; randomly initialised."""

    def __init__(self, size: str) -> None:
        super().__init__()
        width, depth, _, _ = efficientnet_params(f"efficientnet-{size}")
        self.network = EfficientNet(
            BlockDecoder.decode(_BLOCKS),
            GlobalParams(
                width_coefficient=_WIDTH * width,
                depth_coefficient=depth,
                image_size=IMAGE_SIZE,
                batch_norm_momentum=0.9,  # EfficientNet's 0.99 needs longer training than this to settle
                batch_norm_epsilon=1e-3,
                drop_connect_rate=0.0,
                depth_divisor=2,
                min_depth=None,
                include_top=False,
            ),
        )
        self.network.set_swish(memory_efficient=False)  # plain nn.SiLU, which measures can recognise

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, side, side) -> (n, feature_width)."""
        features: Tensor = self.network(images)
        return features.flatten(start_dim=1)


def build_classifier(name: str) -> nn.Module:
    """The mini-efficientnet or mini-regnet of that name, up to its pooled features; randomly initialised."""
    family, key = name.split(":")
    size = SIZES[family][key]
    return _regnet(size) if isinstance(size, RegNetSize) else MiniEfficientNet(key)


def _regnet(size: RegNetSize) -> RegNet:
    """A RegNetX in small, with timm's options for averaging shortcuts and a last convolution.

    Its stem keeps the size of the image, and its fourth stage that of the third: 32 pixels become 32, 16, 8,
    4 and 4, where RegNet's own strides would leave a single one. Shortcuts average pixels instead of leaving
    three of four out, and all blocks start alive: otherwise training starts from a function of 16 pixels.
    """
    network = RegNet(
        RegNetCfg(
            depth=size.depth,
            w0=size.w0,
            wa=size.wa,
            wm=size.wm,
            group_size=size.group_size,
            stem_width=8,
            downsample="avg",
            num_features=size.feature_width,
        ),
        num_classes=0,
        output_stride=16,
        zero_init_last=False,
    )
    network.stem.conv.stride = (1, 1)
    return network
