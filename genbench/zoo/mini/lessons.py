"""What backbones learn in pretraining: images by their class, or by their names and a teacher."""

from __future__ import annotations

import genbench._torchvision  # noqa: F401  before open_clip, which imports torchvision

# isort: split
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from open_clip.loss import ClipLoss
from torch import Tensor, nn
from torch.nn import functional as F

from genbench.zoo.mini.architecture import build_classifier
from genbench.zoo.mini.clip import build_clip
from genbench.zoo.mini.sizes import IMAGE_SIZE, ClipSize, ClipVitSize, Size
from genbench.zoo.mini.tokens import Tokenizer

__all__ = ["Lesson", "classification", "imitation"]

_TEACHER_STAGES = [2, 4]
"""Of a RegNet: 8 x 8 and 4 x 4 places."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Preprocessed images and the indices of their letters -> a scalar."""


@dataclass(frozen=True)
class Lesson:
    """A network that is to be trained, and the loss that it is trained on."""

    model: nn.Module
    """All that is trained. Matrices of its second part, if it has parts, are heads."""
    tower: nn.Module
    """The image tower, a part of it."""
    saved: nn.Module
    """What is kept of it in the end."""
    loss: Loss
    words: tuple[str, ...] = ()
    """Those that its text tower knows."""


def classification(name: str, size: Size, classes: int) -> Lesson:
    """Cross-entropy of a linear head, which is thrown away afterwards."""
    tower = build_classifier(name)
    head = nn.Linear(size.feature_width, classes)

    def loss(images: Tensor, letters: Tensor) -> Tensor:
        return F.cross_entropy(head(tower(images)).float(), letters, label_smoothing=0.1)

    return Lesson(nn.Sequential(tower, head), tower, tower, loss)


def imitation(
    name: str, size: Size, names: Sequence[str], tokenizer: Tokenizer, teacher: nn.Module
) -> Lesson:
    """Cross-entropy of a linear head, CLIP's loss if it is one, and a RegNet's view of every place of images.

        loss = CE(head(features), letter) [+ CLIP(images, names)]
               + Σ_stages mean (linear map of channels − teacher's channels, standardised)²

    An early and the last stage (or block of tokens) of the image tower are held against the teacher's second
    and fourth stage at the same place. Without that, small towers stay at chance for long, and transformers
    for longer than all of this takes: that a stroke is the same in any colour has to be found out first.
    """
    clip = build_clip(size, tokenizer.vocabulary_size) if isinstance(size, ClipSize | ClipVitSize) else None
    tower: nn.Module = build_classifier(name) if clip is None else clip.visual
    stages = _stages(size)
    with torch.no_grad():
        blank = torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE)
        widths = [view.shape[1] for view in _look(tower.eval(), blank, stages)[1]]
        channels = [view.shape[1] for view in _look(teacher, blank, _TEACHER_STAGES)[1]]
    head = nn.Linear(size.feature_width, len(names))
    maps = nn.ModuleList(nn.Conv2d(own, other, 1) for own, other in zip(widths, channels, strict=True))
    standard = nn.ModuleList(nn.BatchNorm2d(n, affine=False) for n in channels)
    tokens, clip_loss = tokenizer(names), ClipLoss()

    def loss(images: Tensor, letters: Tensor) -> Tensor:
        features, own_views = _look(tower, images, stages)
        value = F.cross_entropy(head(features), letters)
        with torch.no_grad():
            views = _look(teacher, images, _TEACHER_STAGES)[1]
        for own, view, to_view, norm in zip(own_views, views, maps, standard, strict=True):
            value = value + F.mse_loss(to_view(own), norm(F.interpolate(view, own.shape[-2:])))
        if clip is not None:
            text = clip.encode_text(tokens[letters], normalize=True)
            scale = clip.logit_scale.clamp(max=math.log(100)).exp()
            value = value + clip_loss(F.normalize(features, dim=-1), text, scale)
        return value

    model = tower if clip is None else clip
    trained = nn.Sequential(model, nn.ModuleList([head, maps, standard]))
    return Lesson(trained, tower, model, loss, () if clip is None else tokenizer.words)


def _stages(size: Size) -> list[int]:
    """The stages or blocks that see as far as the teacher's."""
    match size:
        case ClipSize():
            return [2, 3]
        case ClipVitSize():
            return [0, size.layers - 1]
        case _:
            return _TEACHER_STAGES


def _look(tower: Any, images: Tensor, stages: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Features (n, width) of a tower of open_clip or timm, and what stages give out, (n, channels, h, w)."""
    seen = tower.forward_intermediates(images, indices=stages)
    if isinstance(seen, dict):
        return seen["image_features"], seen["image_intermediates"]
    last, views = seen
    return tower.forward_head(last), views
