"""The images of a testbed: which classes and images a suite takes, and the unseen classes' augmentation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.data.images import ImageData, ImageSplit
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry

__all__ = ["augment", "chosen_images", "load_data"]

_BATCH = 256


def load_data(dataset: str, seen: int, unseen: int, seed: int) -> ImageData:
    """The data set of a suite's table [data], checked to have enough classes."""
    entry, argument = load_registry().resolve("datasets", dataset)
    data: ImageData = entry.item.load(DataRequest(argument=argument, seed=seed))
    if len(data.class_names) < seen + unseen:
        raise UserError(
            f"{dataset} has {len(data.class_names)} classes, but the suite takes {seen + unseen} "
            f"(data.seen = {seen}, data.unseen = {unseen}); lower them with --set"
        )
    return data


def chosen_images(
    split: ImageSplit, classes: range, per_class: int | None, side: int | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Images (n, c, h, w) uint8 and labels of `classes`, at most `per_class` of each, drawn by `seed`."""
    labels = split.labels
    rows = ((labels >= classes.start) & (labels < classes.stop)).nonzero()[:, 0]
    if per_class is not None:
        generator = torch.Generator().manual_seed(seed)
        kept = []
        for k in classes:
            of_class = rows[labels[rows] == k]
            kept.append(of_class[torch.randperm(len(of_class), generator=generator)[:per_class]])
        rows = torch.cat(kept).sort().values if kept else rows
    if not len(rows):
        sample = split.batch([0])
        return sample.new_zeros(0, *sample.shape[1:]), labels[rows].clone()
    images = torch.cat([_sized(split.batch(part), side) for part in rows.split(_BATCH)])
    return images.contiguous(), labels[rows].clone()


def _sized(images: Tensor, side: int | None) -> Tensor:
    """Shorter side to `side`, centre square."""
    if side is None or images.shape[-2:] == (side, side):
        return images
    height, width = images.shape[-2:]
    scale = side / min(height, width)
    target = (max(side, round(height * scale)), max(side, round(width * scale)))
    images = F.interpolate(images, size=target, mode="bicubic", antialias=True)
    top, left = (target[0] - side) // 2, (target[1] - side) // 2
    return images[..., top : top + side, left : left + side]


def augment(images: Tensor, seed: int) -> Tensor:
    """Flip half of the images, rotate each by up to 20° and crop 80 to 100 % of it (004 Sec. 4).

    So that no pretrained model can have seen them. What happens to an image depends on its row and `seed`
    alone.
    """
    if not len(images):
        return images
    generator = torch.Generator().manual_seed(derive_seed("augment", seed) % 2**63)
    draws = torch.rand(len(images), 5, generator=generator)
    parts = zip(images.split(_BATCH), draws.split(_BATCH), strict=True)
    return torch.cat([_augmented(part, draw) for part, draw in parts])


def _augmented(images: Tensor, draws: Tensor) -> Tensor:
    flip = torch.where(draws[:, 0] < 0.5, -1.0, 1.0)
    angle = (draws[:, 1] * 2 - 1) * torch.pi / 9
    side = (0.8 + 0.2 * draws[:, 2]).sqrt()  # the scale is a share of the area
    shift = (draws[:, 3:] * 2 - 1) * (1 - side)[:, None]
    cos, sin = angle.cos() * side, angle.sin() * side
    theta = torch.stack(
        [
            torch.stack([cos * flip, -sin, shift[:, 0]], dim=1),
            torch.stack([sin * flip, cos, shift[:, 1]], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    turned = F.grid_sample(images.float(), grid, padding_mode="reflection", align_corners=False)
    return turned.round_().clamp_(0, 255).to(torch.uint8)
