"""Frobenius norms of the folded weights and of their change in training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]


def _squared(tensors: list[Tensor]) -> list[float]:
    return [float(tensor.double().square().sum()) for tensor in tensors]


@measure(category="norm", paper="001 (25)")
def param_norm(subject: Subject) -> float:
    """Norm of all weights.

    sqrt(C / m) with C = sum_i ||W_i||_F².
    """
    return math.sqrt(sum(_squared(subject.weights())) / subject.m)


@measure(category="norm", needs={"weights", "initial_weights"}, paper="001 (23)")
def fro_dist(subject: Subject) -> float:
    """Distance of all weights from their initial values.

    sqrt(C / m) with C = sum_i ||W_i − W⁰_i||_F².
    """
    changes = [w - w0 for w, w0 in zip(subject.weights(), subject.initial_weights(), strict=True)]
    return math.sqrt(sum(_squared(changes)) / subject.m)


@measure(category="norm", paper="001 (20)", logarithm=True)
def log_prod_of_fro(subject: Subject) -> float:
    """Logarithm of the product of the layers' Frobenius norms.

    ½ (log C − log m) with C = prod_i ||W_i||_F², summed in the log domain.
    """
    return 0.5 * (sum(map(_log, _squared(subject.weights()))) - math.log(subject.m))


def _log(value: float) -> float:
    from genbench.errors import NotApplicable

    if value == 0:
        raise NotApplicable("a layer's weights are all 0, so the logarithm of its norm is not defined")
    return math.log(value)


MEASURES = [param_norm, fro_dist, log_prod_of_fro]
