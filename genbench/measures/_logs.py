"""Products of norms, as sums of logarithms: the log measures of 001 C.6."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["by_layer", "half_log", "log_product", "log_sum", "squared_norms"]


def by_layer(subject: Subject, squares: Sequence[float]) -> dict[str, float]:
    """Norm of each folded layer by its name, from the squared norms."""
    return {name: math.sqrt(s) for name, s in zip(subject.layer_names(), squares, strict=True)}


def squared_norms(tensors: Iterable[Tensor]) -> list[float]:
    """||W_i||_F² of each tensor, in double precision."""
    return [float(tensor.cpu().double().square().sum()) for tensor in tensors]


def log_product(squares: Sequence[float], margin: float = 1.0) -> float:
    """log of (prod_i squares_i) / margin²."""
    if min(squares) == 0:
        raise NotApplicable("a layer's norm is 0, so its logarithm is not defined")
    return sum(map(math.log, squares)) - 2 * math.log(margin)


def log_sum(squares: Sequence[float], margin: float = 1.0) -> float:
    """log of d·((prod_i squares_i) / margin²)^(1/d), d = number of layers."""
    depth = len(squares)
    return math.log(depth) + log_product(squares, margin) / depth


def half_log(log_c: float, subject: Subject) -> float:
    """½ (log C − log m), the normalisation of every log measure."""
    return 0.5 * (log_c - math.log(subject.m))
