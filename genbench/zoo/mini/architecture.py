"""The networks, put together from open_clip's and efficientnet_pytorch's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efficientnet_pytorch import EfficientNet
from efficientnet_pytorch.utils import BlockDecoder, GlobalParams, efficientnet_params
from torch import Tensor, nn

from genbench.zoo.mini.sizes import IMAGE_SIZE, ClipSize
from genbench.zoo.mini.tokens import CONTEXT

if TYPE_CHECKING:
    from open_clip.model import CLIP

__all__ = ["MiniEfficientNet", "build_clip"]

_ATTENTION_HEAD = 32

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


def build_clip(size: ClipSize, vocabulary_size: int) -> CLIP:
    """A CLIP with a modified ResNet, randomly initialised.

    The tower of a 64-pixel image without the pooling of its stem: 32 pixels become 16, 16, 8, 4 and 2, where
    CLIP's own strides would leave a single pixel for the attention pool.
    """
    # Here: it imports torchvision and takes two seconds, which an EfficientNet need not wait for.
    import genbench._torchvision  # noqa: F401  before open_clip

    # isort: split
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    model = CLIP(
        embed_dim=size.feature_width,
        vision_cfg=CLIPVisionCfg(
            layers=size.blocks, width=size.width, head_width=_ATTENTION_HEAD, image_size=2 * IMAGE_SIZE
        ),
        text_cfg=CLIPTextCfg(
            context_length=CONTEXT,
            vocab_size=vocabulary_size,
            width=size.text_width,
            heads=size.text_width // _ATTENTION_HEAD,
            layers=size.text_layers,
        ),
    )
    model.visual.avgpool = nn.Identity()
    return model


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
