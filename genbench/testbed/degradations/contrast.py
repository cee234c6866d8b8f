"""How much an image changes around each pixel, and noise in proportion to that.

Where an image is flat, its SSIM falls at the least noise, while networks read nothing there. Noise that is
alike everywhere therefore meets the paper's levels with next to no harm on letters on a plain ground. Noise
in proportion to contrast takes its toll where something is to be read: with local deviation d under SSIM's
window, noise of deviation k · d leaves a window of any contrast about the same SSIM,

    (2·d² + C2) / (2·d² + k²·d² + C2)  →  1 / (1 + k²/2)   for d² above C2 = .03².
"""

from __future__ import annotations

from torch import Tensor

from genbench.subject.precision import wide
from genbench.testbed.degradations.blur import blurred

__all__ = ["deviations", "local_variances"]

_STRONGEST = 8.0
"""k at full strength; the levels of the paper lie below about 1."""
_SIGMA = 1.5
"""Of the window that contrast is taken in, in pixels: SSIM's."""
_FLAT = 0.01
"""Deviation of the noise in flat parts, at k = 1."""


def local_variances(images: Tensor) -> Tensor:
    """(n, 1, height, width): d², a mean over channels."""
    wider = images.to(wide(images.device))
    # A variance is a small difference of large squares: centring keeps single precision exact enough.
    centred = wider - wider.mean(dim=(-2, -1), keepdim=True)
    variances = blurred(centred.square(), _SIGMA) - blurred(centred, _SIGMA).square()
    return variances.mean(dim=1, keepdim=True).clamp(min=0)


def deviations(variances: Tensor, strength: float) -> Tensor:
    """Deviations √(k²·d² + k⁴·.01²) of the noise, k = 8 · strength², from `local_variances`.

    Flat parts follow as k grows: pictures that are mostly flat would reach no low level without them.
    """
    # Squared: the levels of the paper lie at small k.
    k = _STRONGEST * strength**2
    return (variances * k**2 + (_FLAT * k**2) ** 2).sqrt().float()
