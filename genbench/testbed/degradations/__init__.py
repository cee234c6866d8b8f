"""Ways to degrade images, and their calibration to a mean SSIM.

Listings read `DEGRADATIONS`, so nothing here imports torch before a degradation is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from genbench.engine.compute import compute_device
from genbench.plugin.offers import Degradation, DegradationTask, Dial

__all__ = ["DEFAULT", "DEGRADATIONS"]


def _fitted_by(module: str) -> Callable[[DegradationTask], Sequence[Dial]]:
    def fit(task: DegradationTask) -> Sequence[Dial]:
        device = compute_device()
        moved = replace(task, images=task.images.to(device), labels=task.labels.to(device))
        dials: Sequence[Dial] = import_module(f"{__name__}.{module}").fit(moved)
        return dials

    return fit


DEFAULT = "autoencoder"

DEGRADATIONS = [
    Degradation(name, summary, _fitted_by(name), version)
    for name, version, summary in (
        (
            "autoencoder",
            "2",
            "reconstruction by a convolutional autoencoder whose bottleneck narrows steadily",
        ),
        ("gaussian", "2", "Gaussian noise in proportion to the contrast around a pixel"),
        ("blur", "1", "Gaussian blur"),
        ("jpeg", "2", "JPEG compression of ever smaller copies"),
        ("fgsm", "2", "steps along the sign of a small network's gradient, in proportion to contrast"),
    )
]
