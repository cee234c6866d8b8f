"""Information criteria: fit plus a penalty for complexity (002 A.5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.measures._estimates import jackknife, jackknife_bias, resampled, skewed, together
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DATA = frozenset({"weights", "training_data"})
_GRADIENTS = frozenset({"gradients", "training_data"})
_EXAMPLES = 256


def _losses(subject: Subject) -> Tensor:
    """−log p(y_n | x_n) of every training example."""
    log_p = subject.logits().double().log_softmax(1)
    return -log_p.gather(1, subject.labels()[:, None])[:, 0]


@measure(category="information", needs=_DATA, paper="002 (40)", cost="low")
def aic(subject: Subject) -> float:
    """Akaike's information criterion.

    2·NLL + 2k, NLL = −sum_n log p(y_n | x_n) over the training set, k = number of trainable parameters.

    Limits: derived for maximum likelihood in regular models with many more examples than parameters.
    """
    return 2 * float(_losses(subject).sum()) + aic_bias(subject)


@measure(category="information", paper="002 A.5", cost="low")
def aic_bias(subject: Subject) -> float:
    """Penalty of Akaike's information criterion.

    2k, k = number of trainable parameters. Limits: as aic; blind to training.
    """
    return 2.0 * sum(parameter.numel() for parameter in subject.parameters())


@measure(
    category="information",
    needs=_GRADIENTS,
    randomness="seeded",
    paper="002 (43)",
    cost="medium",
    version="4",
)
def tic_bias(subject: Subject) -> Estimate:
    """Penalty of Takeuchi's information criterion, diagonal approximation.

    sum_j J_jj / (I_jj + eps), J = mean of g_n g_nᵀ over single examples, I = Hessian of the mean loss, eps =
    1e-3 of the mean of I_jj; on 256 training examples, all of them if there are no more, drawn by the size of
    |p − y|² and of 1 − |p|², p the predicted probabilities, which J and I are in proportion to. By how much
    the ratios of a sample are off on average is taken off; that and the error given, which is that of the
    draw, come from leaving out a sixteenth at a time.

    Limits: 002 leaves eps open; a fixed one outweighs I on a network that fits its data. I is the Hessian in
    its Gauss-Newton form (the Fisher information), not the paper's Hutchinson diagonal of the raw Hessian:
    that has negative entries in a network, where the ratio means nothing.
    """
    part = subject.information()
    ratio, left_out = float(part["ratio"]), part["left_out"][:, 0]
    error = _of_draw(part, left_out)
    bias = float(part["open"]) ** 2 * jackknife_bias(ratio, left_out)
    ratio -= min(max(bias, -error), error)  # more than the error would be noise
    if len(part["left_out_rest"]):  # what the random projection adds, whatever the examples
        share = math.sqrt(1 - float(part["open"]) ** 2)
        error = together(error, share * jackknife(part["left_out_rest"]))
    return skewed(Estimate(ratio, standard_error=error, samples=min(subject.m, _EXAMPLES)))


def _of_draw(part: Mapping[str, Tensor], left_out: Tensor) -> float:
    """Error that the draw of the examples makes; none if all are in."""
    share = float(part["open"])
    return share * jackknife(left_out) if share else 0.0


@measure(
    category="information",
    needs=_GRADIENTS,
    randomness="seeded",
    paper="002 (44)",
    cost="medium",
    version="4",
)
def tic_bias_bound(subject: Subject) -> Estimate:
    """Upper bound of tic_bias.

    tr(J) / max(min_j I_jj, eps), J, I and eps as in tic_bias.

    Limits: any parameter without effect, a dead unit's say, makes the denominator eps; it then is tr(J) /
    eps, a thousand times the ratio of the means of J_jj and I_jj, per parameter.
    """
    part = subject.information()
    _, traces, least, eps = part["left_out"].T
    error = _of_draw(part, traces / torch.maximum(least, eps))
    value = float(part["trace_j"]) / max(float(part["least_i"]), float(part["eps"]))
    return skewed(Estimate(value, standard_error=error, samples=min(subject.m, _EXAMPLES)))


@measure(
    category="information",
    needs=_GRADIENTS | {"weights"},
    randomness="seeded",
    paper="002 (42)",
    cost="medium",
    version="4",
)
def tic(subject: Subject) -> Estimate:
    """Takeuchi's information criterion, diagonal approximation.

    mean_n −log p(y_n | x_n) + tic_bias, as printed in 002: the penalty is not divided by m. Its Hessian is in
    Gauss-Newton form, for the paper's Hutchinson diagonal goes negative.

    Limits: as tic_bias, which outweighs the loss by far.
    """
    bias = tic_bias.function(subject)
    assert isinstance(bias, Estimate)
    value = float(_losses(subject).mean()) + bias
    return Estimate(value, standard_error=bias.standard_error, samples=bias.samples)


@measure(
    category="information", needs=_DATA, randomness="seeded", paper="002 (46)", cost="medium", version="3"
)
def waic_bias(subject: Subject) -> Estimate:
    """Penalty of the widely applicable information criterion.

    2 sum_n Var_theta[log p(y_n | x_n, theta)], theta drawn around the trained weights: each tensor p with
    noise N(0, (.05·std(p))²); 40 draws on 128 training examples, those more likely that are predicted wrongly
    or not surely, scaled to m.

    Limits: the noise stands in for the posterior, of which nothing else is known; networks with dropout are
    perturbed alike.
    """
    noise, m = subject.weight_noise("tensor"), subject.m

    def penalty(some: Tensor, weights: Tensor) -> float:
        return 2 * m * float(some.var(0) @ weights)

    return skewed(resampled(noise["log_likelihoods"], penalty, noise["chances"], m))


@measure(
    category="information", needs=_DATA, randomness="seeded", paper="002 (45)", cost="medium", version="3"
)
def waic(subject: Subject) -> Estimate:
    """Widely applicable information criterion.

    −2·LPPD + waic_bias, LPPD = sum_n log mean_theta p(y_n | x_n, theta), theta as in waic_bias.

    Limits: as waic_bias.
    """
    noise, m = subject.weight_noise("tensor"), subject.m

    def criterion(some: Tensor, weights: Tensor) -> float:
        each = -2 * (some.logsumexp(0) - math.log(len(some))) + 2 * some.var(0)
        return m * float(each @ weights)

    return skewed(resampled(noise["log_likelihoods"], criterion, noise["chances"], m))


MEASURES = [aic, aic_bias, tic, tic_bias, tic_bias_bound, waic, waic_bias]
