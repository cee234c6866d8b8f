"""Frobenius norms of the folded weights and of their change in training (001 C.6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure
from genbench.measures._logs import half_log, log_product, log_sum, squared_norms

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="norm", paper="001 (25)")
def param_norm(subject: Subject) -> float:
    """Norm of all weights.

    sqrt(C / m) with C = sum_i ||W_i||_F².
    """
    return math.sqrt(sum(squared_norms(subject.weights())) / subject.m)


@measure(category="norm", needs={"weights", "initial_weights"}, paper="001 (23)")
def fro_dist(subject: Subject) -> float:
    """Distance of all weights from their initial values.

    sqrt(C / m) with C = sum_i ||W_i − W⁰_i||_F².
    """
    changes = [w - w0 for w, w0 in zip(subject.weights(), subject.initial_weights(), strict=True)]
    return math.sqrt(sum(squared_norms(changes)) / subject.m)


@measure(category="norm", paper="001 (20)", logarithm=True)
def log_prod_of_fro(subject: Subject) -> float:
    """Logarithm of the product of the layers' Frobenius norms.

    ½ (log C − log m) with C = prod_i ||W_i||_F².
    """
    return half_log(log_product(squared_norms(subject.weights())), subject)


@measure(category="norm", needs={"weights", "training_data"}, paper="001 (19)", logarithm=True)
def log_prod_of_fro_over_margin(subject: Subject) -> float:
    """Logarithm of the product of the layers' Frobenius norms over the margin.

    ½ (log C − log m) with C = prod_i ||W_i||_F² / gamma².
    """
    return half_log(log_product(squared_norms(subject.weights()), subject.margin()), subject)


@measure(category="norm", paper="001 (22)", logarithm=True)
def log_sum_of_fro(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) Frobenius norm.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_F²)^(1/d).
    """
    return half_log(log_sum(squared_norms(subject.weights())), subject)


@measure(category="norm", needs={"weights", "training_data"}, paper="001 (21)", logarithm=True)
def log_sum_of_fro_over_margin(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) Frobenius norm over the margin.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_F² / gamma²)^(1/d).
    """
    return half_log(log_sum(squared_norms(subject.weights()), subject.margin()), subject)


MEASURES = [
    param_norm,
    fro_dist,
    log_prod_of_fro,
    log_prod_of_fro_over_margin,
    log_sum_of_fro,
    log_sum_of_fro_over_margin,
]
