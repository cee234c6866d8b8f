"""JPEG compression by Pillow.

Quality is a whole number, so a strength between two of them gives a share of the images the lower one: every
image is a real JPEG, and the mean SSIM moves in steps of one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.testbed.degradations.randomness import even_shares

__all__ = ["fit"]

_LOWEST_QUALITY = {1: 1, 2: 5, 4: 5}
"""By how much a dial shrinks images. Quality ends at 1, which leaves smooth images still similar, so the next
dials compress smaller copies; below quality 5 these get no worse, only different."""


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial for images as they are, then two that halve and quarter their sides before compression."""
    channels, height, width = task.images.shape[1:]
    if channels not in (1, 3):
        raise UserError(f"degradation 'jpeg' takes images with 1 or 3 channels, not {channels}")
    key = derive_seed("jpeg", task.seed)
    return [_dial(shrink, key) for shrink in _LOWEST_QUALITY if min(height, width) >= 8 * shrink]


def _dial(shrink: int, key: int) -> Dial:
    last = 101 - _LOWEST_QUALITY[shrink]

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        # Step 0 is the image itself, 1 is quality 100, 100 is quality 1.
        steps = (strength * last + even_shares(key, rows)).floor().long().clamp(max=last)
        pairs = zip(images.mul(255).round().byte().cpu(), steps.tolist(), strict=True)
        decoded = torch.stack([_compressed(image, step, shrink) for image, step in pairs])
        return decoded.to(images.device).float() / 255

    return Dial("jpeg" if shrink == 1 else f"jpeg-{shrink}", turn)


def _compressed(image: Tensor, step: int, shrink: int) -> Tensor:
    """A uint8 image (channels, height, width) after compression and decompression."""
    if step == 0:
        return image
    _, height, width = image.shape
    picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
    if shrink > 1:
        smaller = (max(1, width // shrink), max(1, height // shrink))
        picture = picture.resize(smaller, Image.Resampling.BOX)
    file = BytesIO()
    # Colour keeps its full resolution: halving it costs bright colours much of their SSIM at any quality.
    picture.save(file, "JPEG", quality=101 - step, subsampling="4:4:4")
    decoded = Image.open(file).resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(decoded)).reshape(height, width, -1).permute(2, 0, 1)
