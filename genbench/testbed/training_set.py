"""What an adaptation trains on: some of the images, labels of which some are wrong, images moved a little."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Shifts", "chosen_training_set"]

_ANGLE = torch.pi / 36
"""Largest rotation of `shift`: 5°."""
_MOVE = 0.0625
"""Largest translation of `shift`, as a share of half an image's side: one pixel of 32."""


def chosen_training_set(
    labels: Tensor, *, share: float, noise: float, classes: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Rows of the images that are trained on, in their order, and their labels, some of them wrong.

    Of every class the same share, at least one image. All draws are made for all images whatever the shares
    are: the images of a smaller share are among those of a larger, and so are wrong labels.

    Parameters
    ----------
    labels : (n,) all training images' classes, below `classes`.
    share : of the images.
    noise : share of the chosen images' labels that are replaced by another class, each as likely.
    """
    generator = torch.Generator("cpu").manual_seed(seed % 2**63)
    place = torch.rand(len(labels), generator=generator, device="cpu")
    doubt = torch.rand(len(labels), generator=generator, device="cpu")
    step = torch.randint(1, max(2, classes), (len(labels),), generator=generator, device="cpu")
    kept = torch.zeros(len(labels), dtype=torch.bool, device="cpu")
    for label in range(classes):
        own = (labels == label).nonzero()[:, 0]
        count = max(1, round(share * len(own)))
        kept[own[place[own].argsort(stable=True)[:count]]] = True
    rows = kept.nonzero()[:, 0]
    found = labels[rows].clone()
    wrong = doubt[rows].argsort(stable=True)[: round(noise * len(rows))]
    found[wrong] = (found[wrong] + step[rows][wrong]) % classes
    return rows, found


class Shifts:
    """Turns every image of a batch by up to 5° and moves it by up to a 32nd of its side, each anew."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator("cpu").manual_seed(seed % 2**63)

    def __call__(self, images: Tensor) -> Tensor:
        """(n, c, h, w) prepared images, where they are; what comes in from outside repeats the edge."""
        draws = 2 * torch.rand(len(images), 3, generator=self._generator, device="cpu") - 1
        angle = draws[:, 0] * _ANGLE
        cos, sin = angle.cos(), angle.sin()
        rows = [
            torch.stack([cos, -sin, draws[:, 1] * _MOVE], dim=1),
            torch.stack([sin, cos, draws[:, 2] * _MOVE], dim=1),
        ]
        maps = torch.stack(rows, dim=1).to(images.device, images.dtype)
        grid = F.affine_grid(maps, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
