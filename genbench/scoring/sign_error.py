"""Sign-error of a measure over pairs of networks (004 Eq. 6 and 7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["sign_error"]


def sign_error(readings: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    """Mean over unordered pairs of ½ (1 − sgn(d − d')·sgn(C − C')): 0 perfect, ½ a coin, 1 always wrong.

    A tie on either side counts ½.

    Parameters
    ----------
    readings : (models,) values C of a measure for which higher means worse.
    truth : (..., models) values d of what it should predict; leading axes give one sign-error each.
    """
    c = np.asarray(readings, dtype=np.float64)
    d = np.asarray(truth, dtype=np.float64)
    first, second = np.triu_indices(len(c), k=1)
    agreement = np.sign(d[..., first] - d[..., second]) * np.sign(c[first] - c[second])
    return np.asarray(0.5 * (1 - agreement.mean(axis=-1)))
