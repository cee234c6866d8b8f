"""Gaussian noise in proportion to the contrast around each pixel, clipped to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.testbed.degradations.contrast import deviations, local_variances
from genbench.testbed.degradations.networks import remembering
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["fit"]


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial; nothing is learnt from the images."""
    key = derive_seed("gaussian", task.seed)
    variances = remembering(local_variances)

    @remembering
    def pattern(images: Tensor, rows: Tensor) -> Tensor:
        return normal_noise(key, rows, images.shape[1:]).to(images.device)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        # One pattern for all strengths: a lower level is the higher one with more of the same.
        noise = pattern(images, rows) * deviations(variances(images), strength)
        return noise.add_(images).clamp_(0, 1)

    return [Dial("gaussian", turn)]
