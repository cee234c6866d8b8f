"""Training images changed a little, as augmentation in training changes them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.errors import NotApplicable

__all__ = ["AUGMENTATIONS", "augmented"]

AUGMENTATIONS = ("shift", "flip")
_ANGLE = torch.pi / 36
"""Largest rotation of `shift`: 5°."""
_MOVE = 0.125
"""Largest translation of `shift`, as a share of half an image's side: a sixteenth of the side."""


def augmented(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """(n, c, h, w) prepared images, each changed anew; the draws are made on the CPU.

    "shift" turns an image by up to 5° and moves it by up to a sixteenth of its side, repeating the edge;
    "flip" mirrors it left to right, one time in two.
    """
    if kind not in AUGMENTATIONS:
        raise ValueError(f"unknown augmentation {kind!r}; there are {', '.join(AUGMENTATIONS)}")
    if images.ndim != 4 or not images.is_floating_point():
        raise NotApplicable("only images (channels, height, width) can be augmented")
    if kind == "flip":
        mirrored = torch.rand(len(images), generator=generator, device="cpu") < 0.5
        return torch.where(mirrored.to(images.device)[:, None, None, None], images.flip(-1), images)
    draws = 2 * torch.rand(len(images), 3, generator=generator, device="cpu") - 1
    angle = draws[:, 0] * _ANGLE
    cos, sin = angle.cos(), angle.sin()
    rows = [
        torch.stack([cos, -sin, draws[:, 1] * _MOVE], dim=1),
        torch.stack([sin, cos, draws[:, 2] * _MOVE], dim=1),
    ]
    maps = torch.stack(rows, dim=1).to(images.device, images.dtype)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
