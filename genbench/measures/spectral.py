"""Spectral norms of the folded layers, by FFT (001 C.6), and of flattened kernels (002 A.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.errors import NotApplicable
from genbench.measures._logs import by_layer, half_log, log_product, log_sum, squared_norms
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]


def _squares(subject: Subject) -> list[float]:
    """||W_i||_2² of every layer."""
    return [norm**2 for norm in subject.spectral_norms()]


def _ratios(weights: list[Tensor], squares: list[float]) -> float:
    """sum_j ||V_j||_F² / ||W_j||_2², for `weights` V_j."""
    if min(squares) == 0:
        raise NotApplicable("a layer's spectral norm is 0, so ratios to it are not defined")
    return sum(norm / square for norm, square in zip(squared_norms(weights), squares, strict=True))


def _log_ratios(weights: list[Tensor], squares: list[float]) -> float:
    total = _ratios(weights, squares)
    if total == 0:
        raise NotApplicable(
            "the weights are where they started, so the logarithm of their change is not defined"
        )
    return math.log(total)


@measure(category="spectral", paper="001 (15)", logarithm=True, cost="low", version="2")
def log_prod_of_spec(subject: Subject) -> Estimate:
    """Logarithm of the product of the layers' spectral norms.

    ½ (log C − log m) with C = prod_i ||W_i||_2².
    """
    squares = _squares(subject)
    return Estimate(half_log(log_product(squares), subject), layers=by_layer(subject, squares))


@measure(
    category="spectral",
    needs={"weights", "training_data"},
    paper="001 (14)",
    logarithm=True,
    cost="low",
    version="2",
)
def log_prod_of_spec_over_margin(subject: Subject) -> float:
    """Logarithm of the product of the layers' spectral norms over the margin.

    ½ (log C − log m) with C = prod_i ||W_i||_2² / gamma².
    """
    return half_log(log_product(_squares(subject), subject.margin()), subject)


@measure(category="spectral", paper="001 (18)", logarithm=True, cost="low", version="2")
def log_sum_of_spec(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) spectral norm.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_2²)^(1/d).
    """
    return half_log(log_sum(_squares(subject)), subject)


@measure(
    category="spectral",
    needs={"weights", "training_data"},
    paper="001 (17)",
    logarithm=True,
    cost="low",
    version="2",
)
def log_sum_of_spec_over_margin(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) spectral norm over the margin.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_2² / gamma²)^(1/d).
    """
    return half_log(log_sum(_squares(subject), subject.margin()), subject)


@measure(
    category="spectral",
    needs={"weights", "initial_weights", "training_data"},
    paper="001 (12)",
    logarithm=True,
    cost="low",
    version="2",
)
def log_spec_init_main(subject: Subject) -> float:
    """Main term of the spectral bound, with distances from the initial weights.

    ½ (log C − log m) with C = prod_i ||W_i||_2² / gamma² · sum_j ||W_j − W⁰_j||_F² / ||W_j||_2².
    """
    changes = [w - w0 for w, w0 in zip(subject.weights(), subject.initial_weights(), strict=True)]
    squares = _squares(subject)
    return half_log(log_product(squares, subject.margin()) + _log_ratios(changes, squares), subject)


@measure(
    category="spectral",
    needs={"weights", "training_data"},
    paper="001 (13)",
    logarithm=True,
    cost="low",
    version="2",
)
def log_spec_orig_main(subject: Subject) -> float:
    """Main term of the spectral bound, with distances from the origin.

    ½ (log C − log m) with C = prod_i ||W_i||_2² / gamma² · sum_j ||W_j||_F² / ||W_j||_2².
    """
    squares = _squares(subject)
    return half_log(log_product(squares, subject.margin()) + _log_ratios(subject.weights(), squares), subject)


@measure(category="spectral", paper="001 (16)", cost="low", version="2")
def fro_over_spec(subject: Subject) -> float:
    """Ratio of the layers' Frobenius to their spectral norms, a rank in disguise.

    sqrt(C / m) with C = sum_i ||W_i||_F² / ||W_i||_2².
    """
    return math.sqrt(_ratios(subject.weights(), _squares(subject)) / subject.m)


@measure(category="spectral", needs={"weights", "initial_weights"}, paper="001 (24)", cost="low", version="2")
def dist_spec_init(subject: Subject) -> Estimate:
    """Spectral norms of the layers' change in training.

    sqrt(C / m) with C = sum_i ||W_i − W⁰_i||_2².
    """
    squares = [norm**2 for norm in subject.spectral_norms(of="change")]
    return Estimate(math.sqrt(sum(squares) / subject.m), layers=by_layer(subject, squares))


@measure(category="spectral", paper="002 (10)", cost="low")
def spectral_norm_per_layer(subject: Subject) -> Estimate:
    """Mean over layers of the largest singular value of the flattened weights.

    (1/L) sum_l sigma_l, sigma_l = largest singular value of layer l's weights as a matrix (outputs, all
    else), before folding; exact, where the paper iterates.

    Limits: a flattened kernel is not the convolution: its norm may be off by the square root of the kernel's
    size. Batch norm's scales are not in it.
    """
    norms = subject.flat_spectral_norms()
    return Estimate(math.fsum(norms.values()) / len(norms), layers=norms)


@measure(category="spectral", paper="002 A.2", cost="low")
def spec_sum(subject: Subject) -> Estimate:
    """Sum over layers of the largest singular value of the flattened weights.

    sum_l sigma_l, sigma_l as in spectral_norm_per_layer, with the same limits.
    """
    norms = subject.flat_spectral_norms()
    return Estimate(math.fsum(norms.values()), layers=norms)


@measure(category="spectral", paper="002 A.2", logarithm=True, cost="low")
def spec_prod(subject: Subject) -> Estimate:
    """Logarithm of the product over layers of the largest singular value of the flattened weights.

    sum_l log sigma_l, sigma_l as in spectral_norm_per_layer, with the same limits.
    """
    norms = subject.flat_spectral_norms()
    return Estimate(log_product([norm**2 for norm in norms.values()]) / 2, layers=norms)


MEASURES = [
    log_prod_of_spec,
    log_prod_of_spec_over_margin,
    log_sum_of_spec,
    log_sum_of_spec_over_margin,
    log_spec_init_main,
    log_spec_orig_main,
    fro_over_spec,
    dist_spec_init,
    spectral_norm_per_layer,
    spec_sum,
    spec_prod,
]
