"""Images in memory or on disk, with labels, class names and domains: what every data set loads into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["FileImages", "ImageData", "ImageSplit", "TensorImages"]


class ImageSplit(Protocol):
    """One split: labels in memory, images given in batches of raw 0..255 values."""

    @property
    def labels(self) -> Tensor:
        """(n,) int64, indices into `ImageData.class_names`."""
        ...

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Images as (len(indices), channels, height, width) uint8."""
        ...


@dataclass(frozen=True)
class TensorImages:
    """A split that fits in memory."""

    images: Tensor
    """(n, channels, height, width) uint8."""
    labels: Tensor
    domains: Tensor | None = None
    """(n,) int64, indices into `ImageData.domain_names`, where the data set has domains."""

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Images of `indices`, in that order."""
        return self.images[torch.as_tensor(indices, dtype=torch.int64, device=self.images.device)]


@dataclass(frozen=True)
class FileImages:
    """A split whose images are decoded when asked for."""

    paths: Sequence[str]
    labels: Tensor
    decode: Callable[[str], Tensor]
    """Path to (channels, height, width) uint8, the same size for every path."""

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Decoded images of `indices`, in that order."""
        order = torch.as_tensor(indices, dtype=torch.int64, device="cpu").tolist()
        return torch.stack([self.decode(self.paths[i]) for i in order])


@dataclass(frozen=True)
class ImageData:
    """A data set: training and held-out images over one ordered list of named classes."""

    train: ImageSplit
    heldout: ImageSplit
    class_names: tuple[str, ...]
    """Names as a caption would use them; the testbed takes the first half as seen, the rest as unseen."""
    content_hash: str
    """sha256 over the images and labels (or over the files' own hashes), part of every key."""
    domain_names: tuple[str, ...] = ()
