"""Additive Gaussian noise, clipped to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["fit"]


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial; nothing is learnt from the images."""
    key = derive_seed("gaussian", task.seed)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        # Squared: all levels of the paper lie below a deviation of about .1.
        noise = normal_noise(key, rows, images.shape[1:]).to(images.device)
        return noise.mul_(strength**2).add_(images).clamp_(0, 1)

    return [Dial("gaussian", turn)]
