"""Norms of the weights and of their change in training: layer by layer (001 C.6), and of all theta (002)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.measures._estimates import mean_over_examples
from genbench.measures._logs import by_layer, half_log, log_product, log_sum, squared_norms
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="norm", paper="001 (25)", cost="low")
def param_norm(subject: Subject) -> Estimate:
    """Norm of all weights.

    sqrt(C / m) with C = sum_i ||W_i||_F².

    Limits: a batch norm that no layer stands before, as after the additions of a pre-activation network,
    cannot be folded: its scales are in no norm of weights, here or in the other norm and spectral measures.
    """
    squares = squared_norms(subject.weights())
    return Estimate(math.sqrt(sum(squares) / subject.m), layers=by_layer(subject, squares))


@measure(category="norm", needs={"weights", "initial_weights"}, paper="001 (23)", cost="low")
def fro_dist(subject: Subject) -> Estimate:
    """Distance of all weights from their initial values.

    sqrt(C / m) with C = sum_i ||W_i − W⁰_i||_F².
    """
    changes = [w - w0 for w, w0 in zip(subject.weights(), subject.initial_weights(), strict=True)]
    squares = squared_norms(changes)
    return Estimate(math.sqrt(sum(squares) / subject.m), layers=by_layer(subject, squares))


@measure(category="norm", paper="001 (20)", logarithm=True, cost="low")
def log_prod_of_fro(subject: Subject) -> Estimate:
    """Logarithm of the product of the layers' Frobenius norms.

    ½ (log C − log m) with C = prod_i ||W_i||_F².
    """
    squares = squared_norms(subject.weights())
    return Estimate(half_log(log_product(squares), subject), layers=by_layer(subject, squares))


@measure(category="norm", needs={"weights", "training_data"}, paper="001 (19)", logarithm=True, cost="low")
def log_prod_of_fro_over_margin(subject: Subject) -> float:
    """Logarithm of the product of the layers' Frobenius norms over the margin.

    ½ (log C − log m) with C = prod_i ||W_i||_F² / gamma².
    """
    return half_log(log_product(squared_norms(subject.weights()), subject.margin()), subject)


@measure(category="norm", paper="001 (22)", logarithm=True, cost="low")
def log_sum_of_fro(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) Frobenius norm.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_F²)^(1/d).
    """
    return half_log(log_sum(squared_norms(subject.weights())), subject)


@measure(category="norm", needs={"weights", "training_data"}, paper="001 (21)", logarithm=True, cost="low")
def log_sum_of_fro_over_margin(subject: Subject) -> float:
    """Logarithm of the depth times the layers' mean (geometric) Frobenius norm over the margin.

    ½ (log C − log m) with C = d·(prod_i ||W_i||_F² / gamma²)^(1/d).
    """
    return half_log(log_sum(squared_norms(subject.weights()), subject.margin()), subject)


@measure(category="norm", paper="002 A.1", cost="low")
def magnitude(subject: Subject) -> float:
    """Norm of all trainable parameters.

    ||theta||_2, biases and batch norms included.

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not.
    """
    return math.sqrt(sum(squared_norms(subject.parameters())))


@measure(category="norm", needs={"weights", "initial_weights"}, paper="002 A.2", cost="low")
def frobenius_distance(subject: Subject) -> float:
    """Distance of all trainable parameters from where training started.

    ||theta − theta⁰||_2, biases and batch norms included.

    Limits: a freshly initialised head counts as a distance too.
    """
    return math.sqrt(sum(squared_norms(subject.parameter_changes())))


@measure(
    category="norm",
    needs={"gradients", "training_data"},
    randomness="seeded",
    paper="002 (12)",
    cost="medium",
    version="2",
)
def fisher_rao_norm(subject: Subject) -> Estimate:
    """Norm of the parameters in the metric of the Fisher information.

    sqrt(mean_n (theta·g_n)²), g_n = gradient of log p(y_n | x_n) in theta; exact for each example, by the
    derivative of the logits along theta, on at most 1024 training examples.

    Limits: with the labels of the data, not of the model: it goes to 0 with the training loss.
    """
    mean = mean_over_examples(subject.scores().square(), subject.m)
    value = math.sqrt(float(mean))
    error = mean.standard_error
    if error is not None:
        error = error / (2 * value) if value > 0 else 0.0
    return Estimate(value, standard_error=error, samples=mean.samples)


MEASURES = [
    param_norm,
    fro_dist,
    log_prod_of_fro,
    log_prod_of_fro_over_margin,
    log_sum_of_fro,
    log_sum_of_fro_over_margin,
    magnitude,
    frobenius_distance,
    fisher_rao_norm,
]
