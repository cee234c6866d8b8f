"""Gaussian noise in proportion to the contrast around each pixel, clipped to [0, 1].

Where an image is flat, its SSIM falls at the least noise, while networks read nothing there. White noise on
letters on a plain ground therefore meets the paper's levels with next to no harm. Noise in proportion to
contrast takes its toll where something is to be read: with local deviation d under SSIM's window, noise of
deviation k · d leaves a window of any contrast about the same SSIM,

    (2·d² + C2) / (2·d² + k²·d² + C2)  →  1 / (1 + k²/2)   for d² above C2 = .03².

The noise at a pixel has the deviation √(k²·d² + k⁴·.01²).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.subject.precision import wide
from genbench.testbed.degradations.blur import blurred
from genbench.testbed.degradations.networks import remembering
from genbench.testbed.degradations.randomness import normal_noise

__all__ = ["fit"]

_STRONGEST = 8.0
"""k at full strength; the levels of the paper lie below about 1."""
_SIGMA = 1.5
"""Of the window that contrast is taken in, in pixels: SSIM's."""
_FLAT = 0.01
"""Deviation of the noise in flat parts, at k = 1."""


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial; nothing is learnt from the images."""
    key = derive_seed("gaussian", task.seed)
    contrast = remembering(_local_variances)

    @remembering
    def pattern(images: Tensor, rows: Tensor) -> Tensor:
        return normal_noise(key, rows, images.shape[1:]).to(images.device)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        k = _STRONGEST * strength**2
        # Flat parts follow as k grows: pictures that are mostly flat would reach no low level without them.
        deviations = (contrast(images) * k**2 + (_FLAT * k**2) ** 2).sqrt().float()
        # One pattern for all strengths: a lower level is the higher one with more of the same.
        return (pattern(images, rows) * deviations).add_(images).clamp_(0, 1)

    return [Dial("gaussian", turn)]


def _local_variances(images: Tensor) -> Tensor:
    """(n, 1, height, width): d², a mean over channels."""
    wider = images.to(wide(images.device))
    # A variance is a small difference of large squares: centring keeps single precision exact enough.
    centred = wider - wider.mean(dim=(-2, -1), keepdim=True)
    variances = blurred(centred.square(), _SIGMA) - blurred(centred, _SIGMA).square()
    return variances.mean(dim=1, keepdim=True).clamp(min=0)
