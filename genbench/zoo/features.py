"""From raw images to features: the preprocessing of the published backbones and the batched forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from genbench.subject.inputs import Inputs, Rows
from genbench.zoo.loaded import LoadedBackbone

__all__ = ["Preprocess", "extract_features"]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Preprocess:
    """Resize, centre crop, normalise: what the libraries' own transforms do to one PIL image, for a batch.

    The resizing runs on uint8 and rounds to uint8 after each axis, as PIL's does; it differs from PIL by
    one or two grey levels of 255 in fewer than 1 % of the pixels. (Where the newest PIL resizes a tall
    image's vertical axis first, the rounding differs by one level in a quarter of them.)
    """

    side: int
    """Side of the square that the network takes."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: int | None = None
    """Length of the shorter side before the crop; None means `side`."""
    mode: Literal["bicubic", "bilinear"] = "bicubic"
    squash: bool = False
    """Resize both sides to `resize`, giving up the aspect ratio."""

    def __call__(self, images: Tensor) -> Tensor:
        """Raw images (n, 1 or 3, h, w) uint8 -> (n, 3, side, side) float32."""
        if images.dtype != torch.uint8:
            raise TypeError(f"preprocessing takes raw uint8 images, not {images.dtype}")
        height, width = images.shape[-2:]
        target = self._resized(height, width)
        if target != (height, width):
            images = interpolate(images, size=target, mode=self.mode, antialias=True)
        # torchvision's rounding: an odd margin is split by round-half-to-even
        top, left = (round((length - self.side) / 2) for length in target)
        images = images[..., top : top + self.side, left : left + self.side]
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        mean, std = (
            torch.tensor(values, device=images.device).view(3, 1, 1) for values in (self.mean, self.std)
        )
        return images.to(torch.float32, memory_format=torch.contiguous_format).div_(255).sub_(mean).div_(std)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        short = self.resize or self.side
        if self.squash or height == width:
            return short, short
        if height < width:
            return short, int(short * width / height)
        return int(short * height / width), short


def extract_features(
    backbone: LoadedBackbone, images: Tensor | Rows, batch_size: int = 32, device: torch.device = _CPU
) -> Iterator[Tensor]:
    """Features (n, feature_width) float32 on the CPU of `batch_size` raw images at a time, in their order.

    While the network works on one batch, a thread resizes the next, so that with a core to spare neither
    takes time of its own. The module must be on `device`, and in eval mode: in training mode batch norm would
    make an image's features depend on its neighbours.
    """
    if backbone.module.training:
        raise ValueError(f"{backbone.name} is in training mode; call module.eval() before taking features")
    for batch in Inputs(images, backbone.preprocess, device=device).split(batch_size):
        with torch.inference_mode():
            found = backbone.module(batch)
        # Copied outside inference mode, so that a head may be trained on the result.
        yield torch.empty(found.shape, dtype=torch.float32, device=_CPU).copy_(found)
