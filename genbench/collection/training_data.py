"""The training data of a collection: what a function returns, or a data set as networks take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from genbench.collection.user_code import UserFunction, call, users_code
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry

__all__ = ["given_images", "prepared_images"]

_BATCH = 64
"""Images that are prepared at a time."""


def given_images(function: UserFunction) -> tuple[Tensor, Tensor]:
    """Images and labels out of a user's function, checked."""
    with users_code(function) as load, torch.device("cpu"):
        found = call(function, load, {}, "training data")

    def refuse(what: str) -> UserError:
        return UserError(f"{function.spec} gives no training data: it returned {what}")

    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise refuse(f"{type(found).__name__}, expected a pair (images, labels)")
    try:
        images, labels = (
            part if isinstance(part, Tensor) else torch.as_tensor(part, device="cpu") for part in found
        )
    except (TypeError, ValueError, RuntimeError):
        kinds = " and ".join(type(part).__name__ for part in found)
        raise refuse(f"a pair of {kinds}, expected tensors or arrays (images, labels)") from None
    if not images.is_floating_point() or images.ndim < 2:
        raise refuse(
            f"images of type {images.dtype} and shape {tuple(images.shape)}, expected floating-point "
            "numbers of shape (images, …), as the networks take them"
        )
    if labels.is_floating_point() or labels.dtype is torch.bool or labels.ndim != 1:
        raise refuse(
            f"labels of type {labels.dtype} and shape {tuple(labels.shape)}, expected integers of shape "
            "(images,)"
        )
    if len(images) != len(labels) or len(labels) == 0:
        raise refuse(f"{len(images)} images and {len(labels)} labels, expected as many of both, and some")
    if int(labels.min()) < 0:
        raise refuse(f"a label {int(labels.min())}, expected labels from 0")
    return images.detach().cpu(), labels.detach().cpu().long()


def prepared_images(dataset: str, options: Mapping[str, Any]) -> tuple[Iterator[Tensor], Tensor]:
    """Training images of a data set as (pixel / 255 − mean) / std, and labels in the data set's own order.

    The images come in parts, each prepared when it is taken.
    """
    entry, argument = load_registry().resolve("datasets", dataset)
    # Without a seed: networks trained elsewhere know the classes in their usual order.
    split = entry.item.load(DataRequest(argument=argument, seed=None)).train
    size = options.get("train_size") or len(split)
    if size > len(split):
        raise UserError(f"data.train_size = {size}, but {dataset} has {len(split)} training images")
    rows = torch.arange(len(split), device="cpu")
    if size < len(split):
        generator = torch.Generator("cpu").manual_seed(options.get("seed") or 0)
        rows = torch.randperm(len(split), generator=generator, device="cpu")[:size].sort().values
    parts = (_prepared(split.batch(part), options) for part in rows.split(_BATCH))
    return parts, split.labels[rows].long()


def _prepared(raw: Tensor, options: Mapping[str, Any]) -> Tensor:
    images = raw.float() / 255
    side = options.get("image_side")
    if side is not None and images.shape[-2:] != (side, side):
        images = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    mean, std = (
        _by_channel(options.get(name, usual), images.shape[1], name)
        for name, usual in (("mean", 0.0), ("std", 1.0))
    )
    return (images - mean) / std


def _by_channel(given: float | list[float], channels: int, name: str) -> Tensor:
    values = torch.tensor(given, dtype=torch.float32, device="cpu").reshape(-1)
    if len(values) not in (1, channels):
        raise UserError(f"data.{name} has {len(values)} numbers, but images have {channels} channels")
    return values.reshape(1, -1, 1, 1)
