"""Numbers on a fine grid, so that what differs by rounding alone is the same.

Sums and products of matrices end in other last bits on another processor. Where only the order of numbers
counts, two that are equal in truth would be ordered by those bits, and a board by the machine that built it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["on_grid"]


def on_grid(values: ArrayLike, bits: int) -> NDArray[np.float64]:
    """The nearest multiples of 2^−bits.

    Of a power of two, because numbers like 1/8 or 3/200 then lie on the grid or at no special place of it;
    halfway between two decimals they would go either way.
    """
    return np.asarray(np.ldexp(np.rint(np.ldexp(np.asarray(values, dtype=np.float64), bits)), -bits))
