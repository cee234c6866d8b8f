"""Means of samples with their standard errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.plugin.contract import Estimate

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["mean_of", "standard_error", "with_halves"]


def standard_error(samples: Tensor) -> float | None:
    """Of the mean of `samples`; None for a single one."""
    n = len(samples)
    return float(samples.double().std()) / math.sqrt(n) if n > 1 else None


def mean_of(samples: Tensor, factor: float = 1.0) -> Estimate:
    """factor · mean of independent samples."""
    error = standard_error(samples)
    return Estimate(
        factor * float(samples.double().mean()),
        standard_error=None if error is None else abs(factor) * error,
        samples=len(samples),
    )


def with_halves(values: Tensor, samples: int | None = None) -> Estimate:
    """values[0], with the error that values[1] and values[2], from either half of the data, suggest."""
    whole, first, second = values.tolist()
    return Estimate(whole, standard_error=abs(first - second) / 2, samples=samples)
