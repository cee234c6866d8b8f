"""What every backbone loads into: a feature extractor, its preprocessing and, for CLIP, its text tower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

__all__ = ["LoadedBackbone"]


@dataclass(frozen=True)
class LoadedBackbone:
    """A pretrained image tower in eval mode."""

    name: str
    module: nn.Module
    """Preprocessed images (n, 3, side, side) float32 -> features (n, feature_width)."""
    preprocess: Callable[[Tensor], Tensor]
    """Raw images (n, channels, h, w) uint8, 1 or 3 channels, any size -> what `module` takes."""
    feature_width: int
    weight_count: int
    """Weights as the papers count them: the image tower of CLIP; for the others the published network with
    the classifier it was pretrained with, which `module` leaves out."""
    weights_hash: str
    """sha256 of the weights, part of every key."""
    encode_text: Callable[[Sequence[str]], Tensor] | None = None
    """Prompts -> unit-length embeddings (len(prompts), feature_width) that live in the space of the
    unit-length image features; None for families without a text tower."""
    prompt: str = "a photo of a {name}"
    """The template the family was trained with."""
