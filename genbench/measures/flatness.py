"""How much noise the weights bear, alone and as PAC-Bayes bounds (001 C.6).

sigma is the largest standard deviation of Gaussian noise on the folded parameters that costs a tenth of the
training accuracy; sigma' the same with noise in proportion to each weight. Both are Monte-Carlo searches
(`Subject.sigma`), shared by all six measures: a coarse bisection of log sigma, then 96 draws around the
place, each judged on 40 training examples of its own, and the line through what they cost. The error is that
of the line. The search is on (0, 2): a network that no such noise hurts, one that never learnt for example,
reads as sigma = 2. Like the authors' code, the bounds have log(m/sigma) + 10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]


def _at(sigma: Estimate, formula: Callable[[float], float]) -> Estimate:
    """The formula at sigma, with the error that sigma's own error makes."""
    error = None
    if sigma.standard_error is not None:
        # One step is enough to know the size of it, and stays clear of sigma = 0.
        error = abs(formula(sigma + sigma.standard_error) - formula(sigma))
    return Estimate(formula(sigma), standard_error=error, samples=sigma.samples)


def _flat(weights: list[Tensor]) -> Tensor:
    return torch.cat([weight.flatten().cpu().double() for weight in weights])


def _bound(vector: Tensor, sigma: float, m: int) -> float:
    """sqrt(C / m) with C = ||v||² / (4 sigma²) + log(m/sigma) + 10."""
    complexity = float(vector.square().sum()) / (4 * sigma**2) + math.log(m / sigma) + 10
    return math.sqrt(complexity / m)


def _magnitude_bound(subject: Subject, vector: Tensor, change: Tensor, sigma: float) -> float:
    """The same with noise in proportion to the weights; `vector` is v, `change` is w − w⁰."""
    m, eps = subject.m, subject.sigma_eps
    prior = eps**2 + (sigma**2 + 1) * vector.square().sum() / vector.numel()
    posterior = eps**2 + sigma**2 * change.square()
    complexity = float((prior / posterior).log().sum()) / 4 + math.log(m / sigma) + 10
    if complexity < 0:
        raise NotApplicable("the prior is narrower than the posterior, so the complexity term is negative")
    return math.sqrt(complexity / m)


_DATA = frozenset({"weights", "training_data"})
_ALL = _DATA | {"initial_weights"}


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (28)", cost="high", version="4")
def pacbayes_init(subject: Subject) -> Estimate:
    """PAC-Bayes bound with the initial weights as prior.

    sqrt(C / m) with C = ||w − w⁰||² / (4 sigma²) + log(m/sigma) + 10.
    """
    change = _flat(subject.weights()) - _flat(subject.initial_weights())
    return _at(subject.sigma(), lambda sigma: _bound(change, sigma, subject.m))


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (29)", cost="high", version="4")
def pacbayes_orig(subject: Subject) -> Estimate:
    """PAC-Bayes bound with the origin as prior.

    sqrt(C / m) with C = ||w||² / (4 sigma²) + log(m/sigma) + 10.
    """
    weights = _flat(subject.weights())
    return _at(subject.sigma(), lambda sigma: _bound(weights, sigma, subject.m))


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (30)", cost="high", version="4")
def pacbayes_flatness(subject: Subject) -> Estimate:
    """Inverse of the weight noise that costs a tenth of the training accuracy.

    sqrt(C / m) with C = 1 / sigma².
    """
    return _at(subject.sigma(), lambda sigma: 1 / (sigma * math.sqrt(subject.m)))


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (31)", cost="high", version="4")
def pacbayes_mag_init(subject: Subject) -> Estimate:
    """Magnitude-aware PAC-Bayes bound with the initial weights as prior.

    sqrt(C / m) with C = ¼ sum_i log[(e² + (sigma'² + 1)·||w − w⁰||²/omega) / (e² + sigma'²·(w_i − w⁰_i)²)]
    + log(m/sigma') + 10, e = 1e-3.
    """
    change = _flat(subject.weights()) - _flat(subject.initial_weights())
    sigma = subject.sigma(magnitude_aware=True)
    return _at(sigma, lambda sigma: _magnitude_bound(subject, change, change, sigma))


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (32)", cost="high", version="4")
def pacbayes_mag_orig(subject: Subject) -> Estimate:
    """Magnitude-aware PAC-Bayes bound with the origin as prior.

    sqrt(C / m) with C = ¼ sum_i log[(e² + (sigma'² + 1)·||w||²/omega) / (e² + sigma'²·(w_i − w⁰_i)²)]
    + log(m/sigma') + 10, e = 1e-3.
    """
    weights = _flat(subject.weights())
    change = weights - _flat(subject.initial_weights())
    sigma = subject.sigma(magnitude_aware=True)
    return _at(sigma, lambda sigma: _magnitude_bound(subject, weights, change, sigma))


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (33)", cost="high", version="4")
def pacbayes_mag_flatness(subject: Subject) -> Estimate:
    """Inverse of the noise in proportion to the weights that costs a tenth of the training accuracy.

    sqrt(C / m) with C = 1 / sigma'².
    """
    sigma = subject.sigma(magnitude_aware=True)
    return _at(sigma, lambda sigma: 1 / (sigma * math.sqrt(subject.m)))


MEASURES = [
    pacbayes_init,
    pacbayes_orig,
    pacbayes_flatness,
    pacbayes_mag_init,
    pacbayes_mag_orig,
    pacbayes_mag_flatness,
]
