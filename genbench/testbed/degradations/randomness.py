"""Random numbers that belong to an image, whatever batch it is in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["even_shares", "normal_noise"]

_GOLDEN = (5**0.5 - 1) / 2


def normal_noise(key: int, rows: Tensor, shape: Sequence[int]) -> Tensor:
    """(n, *shape) standard normal float32 on the CPU: a function of `key` and of each image's row number."""
    noise = torch.empty(len(rows), *shape, dtype=torch.float32, device="cpu")
    for target, row in zip(noise, rows.tolist(), strict=True):
        # Philox is keyed, not seeded: every (key, row) has a stream of its own at no cost.
        stream = np.random.Generator(np.random.Philox(key=np.array([key, row], dtype=np.uint64)))
        target.copy_(torch.from_numpy(stream.standard_normal(tuple(shape), dtype=np.float32)))
    return noise


def even_shares(key: int, rows: Tensor) -> Tensor:
    """(n,) float64 in [0, 1), spread evenly over any run of rows: the golden-ratio sequence from a start.

    On the CPU, as row numbers are.
    """
    start = (key % 2**32) / 2**32
    return (rows.double() * _GOLDEN + start) % 1
