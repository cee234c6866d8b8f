"""Networks up to their pooled features, put together from efficientnet_pytorch's and timm's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efficientnet_pytorch import EfficientNet
from efficientnet_pytorch.utils import BlockDecoder, GlobalParams, efficientnet_params
from torch import Tensor, nn

from genbench.zoo.mini.sizes import IMAGE_SIZE, SIZES, RegNetSize

if TYPE_CHECKING:
    from timm.models.regnet import RegNet

__all__ = ["MiniEfficientNet", "build_classifier"]

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
    # Here: it imports torchvision and takes two seconds, which an EfficientNet need not wait for.
    import genbench._torchvision  # noqa: F401  before timm

    # isort: split
    from timm.models.regnet import RegNet, RegNetCfg

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
