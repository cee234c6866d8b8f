"""The images of a testbed: which classes and images a suite takes, and the unseen classes' augmentation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.data.images import ImageData, ImageSplit
from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry

__all__ = ["chosen_images", "chosen_rows", "load_data", "turned", "turns"]

_BATCH = 64
"""Images that are decoded, resized or turned at a time."""


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


def chosen_rows(split: ImageSplit, classes: range, per_class: int | None, seed: int) -> Tensor:
    """Row numbers of the images of `classes`, at most `per_class` of each, drawn by `seed`."""
    labels = split.labels
    rows = ((labels >= classes.start) & (labels < classes.stop)).nonzero()[:, 0]
    if per_class is None or not len(classes):
        return rows
    generator = torch.Generator("cpu").manual_seed(seed)
    kept = []
    for k in classes:
        of_class = rows[labels[rows] == k]
        order = torch.randperm(len(of_class), generator=generator, device="cpu")
        kept.append(of_class[order[:per_class]])
    return torch.cat(kept).sort().values


def chosen_images(split: ImageSplit, rows: Tensor, side: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (n, c, h, w) uint8 of some of `rows` at a time, and these rows' places in `rows`.

    The data set is never held as a whole, decoded or resized. Without rows, one empty part.
    """
    if not len(rows):
        yield split.batch([0])[:0], rows
    for places in torch.arange(len(rows), device="cpu").split(_BATCH):
        yield _sized(split.batch(rows[places]), side).contiguous(), places


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


def turns(count: int, seed: int) -> Tensor:
    """How each of `count` images is turned, a function of its row and `seed`: affine maps (count, 2, 3).

    Half of the images are flipped, each is rotated by up to 20° and cropped to 80 to 100 % (004 Sec. 4), so
    that no pretrained model can have seen them. Made for all images at once, because the last bit of a cosine
    may depend on where in a batch it stands.
    """
    generator = torch.Generator("cpu").manual_seed(derive_seed("augment", seed) % 2**63)
    draws = torch.rand(count, 5, generator=generator, device="cpu")
    flip = torch.where(draws[:, 0] < 0.5, -1.0, 1.0)
    angle = (draws[:, 1] * 2 - 1) * torch.pi / 9
    side = (0.8 + 0.2 * draws[:, 2]).sqrt()  # the scale is a share of the area
    shift = (draws[:, 3:] * 2 - 1) * (1 - side)[:, None]
    cos, sin = angle.cos() * side, angle.sin() * side
    return torch.stack(
        [
            torch.stack([cos * flip, -sin, shift[:, 0]], dim=1),
            torch.stack([sin * flip, cos, shift[:, 1]], dim=1),
        ],
        dim=1,
    )


def turned(images: Tensor, maps: Tensor) -> Tensor:
    """Images (n, c, h, w) uint8 under the maps of `turns`."""
    if not len(images):
        return images
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    moved = F.grid_sample(images.float(), grid, padding_mode="reflection", align_corners=False)
    return moved.round_().clamp_(0, 255).to(torch.uint8)
