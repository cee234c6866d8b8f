"""How much noise the weights bear, alone and as PAC-Bayes bounds (001 C.6).

sigma is the largest standard deviation of Gaussian noise on the folded parameters that costs a tenth of the
training accuracy; sigma' the same with noise in proportion to each weight. Both are Monte-Carlo searches
(`Subject.sigma`), shared by all six measures. Like the authors' code, the bounds have log(m/sigma) + 10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.contract import measure
from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]

_EPS = 1e-3


def _sigma(subject: Subject, magnitude_aware: bool = False) -> float:
    sigma = subject.sigma(magnitude_aware)
    if sigma == 0:
        raise NotApplicable("even the least noise costs a tenth of the training accuracy")
    return sigma


def _flat(weights: list[Tensor]) -> Tensor:
    return torch.cat([weight.flatten().double() for weight in weights])


def _bound(vector: Tensor, sigma: float, m: int) -> float:
    """sqrt(C / m) with C = ||v||² / (4 sigma²) + log(m/sigma) + 10."""
    complexity = float(vector.square().sum()) / (4 * sigma**2) + math.log(m / sigma) + 10
    return math.sqrt(complexity / m)


def _magnitude_bound(vector: Tensor, change: Tensor, sigma: float, m: int) -> float:
    """The same with noise in proportion to the weights; `vector` is v, `change` is w − w⁰."""
    prior = _EPS**2 + (sigma**2 + 1) * vector.square().sum() / vector.numel()
    posterior = _EPS**2 + sigma**2 * change.square()
    complexity = float((prior / posterior).log().sum()) / 4 + math.log(m / sigma) + 10
    if complexity < 0:
        raise NotApplicable("the prior is narrower than the posterior, so the complexity term is negative")
    return math.sqrt(complexity / m)


_DATA = frozenset({"weights", "training_data"})
_ALL = _DATA | {"initial_weights"}


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (28)")
def pacbayes_init(subject: Subject) -> float:
    """PAC-Bayes bound with the initial weights as prior.

    sqrt(C / m) with C = ||w − w⁰||² / (4 sigma²) + log(m/sigma) + 10.
    """
    change = _flat(subject.weights()) - _flat(subject.initial_weights())
    return _bound(change, _sigma(subject), subject.m)


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (29)")
def pacbayes_orig(subject: Subject) -> float:
    """PAC-Bayes bound with the origin as prior.

    sqrt(C / m) with C = ||w||² / (4 sigma²) + log(m/sigma) + 10.
    """
    return _bound(_flat(subject.weights()), _sigma(subject), subject.m)


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (30)")
def pacbayes_flatness(subject: Subject) -> float:
    """Inverse of the weight noise that costs a tenth of the training accuracy.

    sqrt(C / m) with C = 1 / sigma².
    """
    return 1 / (_sigma(subject) * math.sqrt(subject.m))


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (31)")
def pacbayes_mag_init(subject: Subject) -> float:
    """Magnitude-aware PAC-Bayes bound with the initial weights as prior.

    sqrt(C / m) with C = ¼ sum_i log[(e² + (sigma'² + 1)·||w − w⁰||²/omega) / (e² + sigma'²·(w_i − w⁰_i)²)]
    + log(m/sigma') + 10, e = 1e-3.
    """
    change = _flat(subject.weights()) - _flat(subject.initial_weights())
    return _magnitude_bound(change, change, _sigma(subject, magnitude_aware=True), subject.m)


@measure(category="flatness", needs=_ALL, randomness="seeded", paper="001 (32)")
def pacbayes_mag_orig(subject: Subject) -> float:
    """Magnitude-aware PAC-Bayes bound with the origin as prior.

    sqrt(C / m) with C = ¼ sum_i log[(e² + (sigma'² + 1)·||w||²/omega) / (e² + sigma'²·(w_i − w⁰_i)²)]
    + log(m/sigma') + 10, e = 1e-3.
    """
    weights = _flat(subject.weights())
    change = weights - _flat(subject.initial_weights())
    return _magnitude_bound(weights, change, _sigma(subject, magnitude_aware=True), subject.m)


@measure(category="flatness", needs=_DATA, randomness="seeded", paper="001 (33)")
def pacbayes_mag_flatness(subject: Subject) -> float:
    """Inverse of the noise in proportion to the weights that costs a tenth of the training accuracy.

    sqrt(C / m) with C = 1 / sigma'².
    """
    return 1 / (_sigma(subject, magnitude_aware=True) * math.sqrt(subject.m))


MEASURES = [
    pacbayes_init,
    pacbayes_orig,
    pacbayes_flatness,
    pacbayes_mag_init,
    pacbayes_mag_orig,
    pacbayes_mag_flatness,
]
