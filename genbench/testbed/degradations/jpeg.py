"""JPEG compression of ever smaller copies, by Pillow.

Compression alone puts ripples around whatever has an edge. On plain grounds they cost much SSIM, and hardly a
network minds them. So as quality falls, the copy that is compressed shrinks, to be enlarged again: its blocks
grow, and with them goes detail that networks read.

Quality and side are whole numbers, so a strength between two of them gives a share of the images the lower
one: every image is a real JPEG, and the mean SSIM moves in steps of one image.
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

_GRADES = 91
"""Steps down from the image itself: 1 is quality 100, 91 is quality 10."""


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial; nothing is learnt from the images."""
    channels = task.images.shape[1]
    if channels not in (1, 3):
        raise UserError(f"degradation 'jpeg' takes images with 1 or 3 channels, not {channels}")
    key = derive_seed("jpeg", task.seed)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        shorter = min(images.shape[-2:])
        shares = even_shares(key, rows)
        # Down to one pixel, which is the mean colour: less would not reach every level on plain pictures.
        lost = _whole_numbers(shorter - shorter ** (1 - strength), shares)
        grades = _whole_numbers(_GRADES * strength, shares)
        settings = zip(images.mul(255).round().byte().cpu(), lost, grades, strict=True)
        decoded = [_compressed(image, 1 - pixels / shorter, grade) for image, pixels, grade in settings]
        return torch.stack(decoded).to(images.device).float() / 255

    return [Dial("jpeg", turn)]


def _whole_numbers(value: float, shares: Tensor) -> list[int]:
    """The next lower or the next higher for each image, by its share; `value` on average."""
    return [int(number) for number in (value + shares).floor().tolist()]


def _compressed(image: Tensor, scale: float, grade: int) -> Tensor:
    """A uint8 image (channels, height, width) after compression and decompression of its smaller copy."""
    if grade == 0:
        return image
    _, height, width = image.shape
    picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
    if scale < 1:
        smaller = (max(1, round(width * scale)), max(1, round(height * scale)))
        picture = picture.resize(smaller, Image.Resampling.BICUBIC)
    file = BytesIO()
    # Colour keeps its full resolution: halving it costs bright colours much of their SSIM at any quality.
    picture.save(file, "JPEG", quality=101 - grade, subsampling="4:4:4")
    decoded = Image.open(file).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(decoded)).reshape(height, width, -1).permute(2, 0, 1)
