"""How much the loss rises when the weights are moved: by a gradient step or by noise (002 A.3).

The sharpness under noise is the expected largest loss increase of 5 draws (Eq. 18, 24): its mean over all
ways to choose 5 of 40. The paper leaves the sizes open; here rho = .05, r = sigma_post = .05, and the loss is
estimated from 128 training examples, those more likely that are predicted wrongly or not surely. Errors are
those of the draws and of the choice of examples, by leaving out one draw and one group of examples at a time.
Means over mini-batches are corrected for the choice of batches as that of `gradient_norm` is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.measures._estimates import expected_largest, mean_by, resampled, skewed, together
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DATA = frozenset({"weights", "training_data"})
_GRADIENTS = frozenset({"gradients", "training_data"})
_RADII = (0.01, 10**-1.5, 0.1, 10**-0.5, 1.0)
_GROUP = 5


@measure(
    category="sharpness", needs=_GRADIENTS, randomness="seeded", paper="002 (15)", cost="medium", version="4"
)
def sharpness(subject: Subject) -> Estimate:
    """Rise of the loss after one step uphill.

    mean_b [L_b(theta + rho·u_b) − L_b(theta)], u_b = gradient of the batch loss L_b over its norm, rho =
    .05; 24 mini-batches of 32 training examples. (Foret et al. 2021)

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not.
    """
    part = subject.batch_gradients()
    return _over_batches(part["losses"][:, 1] - part["losses"][:, 0], part)


@measure(
    category="sharpness", needs=_GRADIENTS, randomness="seeded", paper="002 (16)", cost="medium", version="4"
)
def adaptive_sharpness(subject: Subject) -> Estimate:
    """Steepest rise of the loss over several lengths of one step uphill.

    max_k sharpness(rho_k) / rho_k, rho_k from .01 to 1 in five log-spaced steps; sharpness as there.

    Limits: as sharpness. The largest of five noisy means is a little above the largest mean.
    """
    part = subject.batch_gradients()
    losses = part["losses"]
    rises = (losses[:, 2:] - losses[:, :1]) / losses.new_tensor(_RADII)
    return max(_over_batches(rise, part) for rise in rises.T)


def _over_batches(rises: Tensor, part: Mapping[str, Tensor]) -> Estimate:
    return mean_by(rises, part["doubts"], float(part["mean_doubt"]))


def _largest_increase(subject: Subject, kind: str, factor: float = 1.0) -> Estimate:
    """factor · expected largest increase of the loss in 5 draws."""
    noise = subject.weight_noise(kind)
    rises = noise["clean"] - noise["log_likelihoods"]

    def largest(some: Tensor, weights: Tensor) -> float:
        return factor * expected_largest(some @ weights, _GROUP)

    return resampled(rises, largest, noise["chances"], subject.m)


def _root_mean_square(tensors: list[Tensor]) -> float:
    """||v||_2 / sqrt(d)."""
    squares = sum(float(t.cpu().double().square().sum()) for t in tensors)
    return math.sqrt(squares / sum(t.numel() for t in tensors))


@measure(category="sharpness", needs=_DATA, randomness="seeded", paper="002 (20)", cost="medium", version="3")
def sharpness_magnitude(subject: Subject) -> Estimate:
    """Rise of the loss under noise in proportion to each tensor's spread, times the parameters' size.

    max_k [L(theta + noise_k) − L(theta)] · ||theta||_2 / sqrt(d), noise on tensor p ~ N(0, (r·std(p))²).

    Limits: a tensor whose entries are all equal gets no noise.
    """
    size = _root_mean_square(subject.parameters())
    return _largest_increase(subject, "tensor", size)


@measure(
    category="sharpness",
    needs=_DATA | {"initial_weights"},
    randomness="seeded",
    paper="002 (22)",
    cost="medium",
    version="3",
)
def sharpness_magnitude_init(subject: Subject) -> Estimate:
    """Rise of the loss under noise in proportion to each tensor's spread, times the distance travelled.

    max_k [L(theta + noise_k) − L(theta)] · ||theta − theta⁰||_2 / sqrt(d), noise as in sharpness_magnitude.

    Limits: as sharpness_magnitude. Where the initial weights are not known the paper falls back to that
    measure; genbench says not applicable.
    """
    size = _root_mean_square(subject.parameter_changes())
    return _largest_increase(subject, "tensor", size)


@measure(category="sharpness", needs=_DATA, randomness="seeded", paper="002 (24)", cost="medium", version="3")
def sharpness_magflat(subject: Subject) -> Estimate:
    """Rise of the loss under noise in proportion to each weight.

    max_k [L(theta + noise_k) − L(theta)], noise = r·z·(|theta| + eps), z ~ N(0, I), eps = 1e-3.

    Limits: eps makes it change, though little, when consecutive ReLU layers are rescaled.
    """
    return skewed(_largest_increase(subject, "magnitude"))


# -- McAllester's bound around the noise (002 Eq. 25 to 29) ------------------------------------------

_DELTA, _PRIOR, _RELATIVE, _ISOTROPIC, _EPS = 0.05, 0.1, 0.05, 0.01, 1e-3


def _bound(subject: Subject, kind: str, divergence: float) -> Estimate:
    """Error under noise + sqrt((KL + log(2 sqrt(m) / delta)) / (2m))."""
    noise, m = subject.weight_noise(kind), subject.m
    wrong = noise["wrong"]
    error = resampled(wrong, lambda some, weights: float((some @ weights).mean()), noise["chances"], m)
    if not math.isfinite(divergence):
        raise NotApplicable("the divergence of the noisy weights from the prior is infinite")
    complexity = math.sqrt((divergence + math.log(2 * math.sqrt(m) / _DELTA)) / (2 * m))
    # Where no answer is wrong, one could be: in one more draw, or to an example that was not looked at.
    draws, n = wrong.shape
    finest = together(1 / (draws * n), 1 / m if n < m else 0.0)
    spread = together(error.standard_error or 0.0, finest)
    return Estimate(min(float(error), 1.0) + complexity, standard_error=spread, samples=draws)


def _divergence(shifts: list[Tensor], spreads: list[Tensor], prior: float) -> float:
    """KL(N(shift, spread²) || N(0, prior²)), summed over coordinates (002 Eq. 28)."""
    total = 0.0
    for shift, spread in zip(shifts, spreads, strict=True):
        ratio = (spread.cpu().double() / prior).square()
        total += 0.5 * float(((shift.cpu().double() / prior).square() + ratio - 1 - ratio.log()).sum())
    return total


@measure(category="sharpness", needs=_DATA, randomness="seeded", paper="002 A.3", cost="medium", version="3")
def pac_bayes_bound(subject: Subject) -> Estimate:
    """PAC-Bayes bound of the network with isotropic noise on its weights.

    error under noise + sqrt((KL(Q||P) + log(2 sqrt(m)/delta)) / (2m)), Q = N(theta, s² I), P = N(0, p² I),
    s = .01, p = .1, delta = .05. (McAllester 1999)

    Limits: 002 names it and gives no formula; this is its Eq. 29 with isotropic noise. It is vacuous (above
    1) for networks with more weights than training examples, and then counts weights.
    """
    theta = subject.parameters()
    spreads = [torch.full_like(p, _ISOTROPIC) for p in theta]
    return _bound(subject, "isotropic", _divergence(theta, spreads, _PRIOR))


def _tensor_spreads(theta: list[Tensor], size: float) -> list[Tensor]:
    """r·std(p) for every tensor; where a tensor has none, a thousandth of the parameters' size stands in."""
    deviations = [float(p.cpu().double().std()) if p.numel() > 1 else 0.0 for p in theta]
    return [
        torch.full_like(p, _RELATIVE * max(deviation, _EPS * size))
        for p, deviation in zip(theta, deviations, strict=True)
    ]


@measure(category="sharpness", needs=_DATA, randomness="seeded", paper="002 A.3", cost="medium", version="3")
def pac_bayes_magnitude(subject: Subject) -> Estimate:
    """PAC-Bayes bound with a prior as wide as the parameters are large.

    As pac_bayes_bound with Q = N(theta, (r·std(p))²) on each tensor p and P = N(0, M² I), M = ||theta||_2 /
    sqrt(d).

    Limits: 002 names it and gives no formula; this takes noise and magnitude from its Eq. 17 and 19. The
    prior's width is read off the trained weights, so it is no bound in the strict sense, and it is vacuous
    as pac_bayes_bound is.
    """
    theta = subject.parameters()
    size = _root_mean_square(theta)
    if size == 0:
        raise NotApplicable("all parameters are 0, so the prior has no width")
    return _bound(subject, "tensor", _divergence(theta, _tensor_spreads(theta, size), size))


@measure(
    category="sharpness",
    needs=_DATA | {"initial_weights"},
    randomness="seeded",
    paper="002 A.3",
    cost="medium",
    version="3",
)
def pac_bayes_magnitude_init(subject: Subject) -> Estimate:
    """PAC-Bayes bound with a prior around the initial weights, as wide as they moved.

    As pac_bayes_magnitude with P = N(theta⁰, M² I), M = ||theta − theta⁰||_2 / sqrt(d) (002 Eq. 21).

    Limits: as pac_bayes_magnitude.
    """
    theta, changes = subject.parameters(), subject.parameter_changes()
    size = _root_mean_square(changes)
    if size == 0:
        raise NotApplicable("the weights are where they started, so the prior has no width")
    return _bound(subject, "tensor", _divergence(changes, _tensor_spreads(theta, size), size))


@measure(category="sharpness", needs=_DATA, randomness="seeded", paper="002 (29)", cost="medium", version="3")
def pac_bayes_magflat(subject: Subject) -> Estimate:
    """PAC-Bayes bound of the network with noise in proportion to each weight.

    As pac_bayes_bound with Q = N(theta, (r·(|theta_i| + eps))²) and P = N(0, p² I), r = .05, p = .1, eps =
    1e-3.

    Limits: the eps of Eq. 23 is in the posterior too, because without it a weight of exactly 0 makes the
    divergence infinite. Vacuous as pac_bayes_bound is.
    """
    theta = subject.parameters()
    spreads = [_RELATIVE * (p.abs() + _EPS) for p in theta]
    return _bound(subject, "magnitude", _divergence(theta, spreads, _PRIOR))


MEASURES = [
    sharpness,
    adaptive_sharpness,
    sharpness_magnitude,
    sharpness_magnitude_init,
    sharpness_magflat,
    pac_bayes_bound,
    pac_bayes_magnitude,
    pac_bayes_magnitude_init,
    pac_bayes_magflat,
]
