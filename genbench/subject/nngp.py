"""Random networks of one architecture as a Gaussian process: its kernel, and the evidence for labels.

The kernel of a wide network is the covariance of its outputs over random initialisations (NNGP); here it is
estimated from draws of the architecture itself. The probability that such a process classifies all examples
right, its marginal likelihood P(C(S)) in 000 Eq. 24, is that of an orthant; expectation propagation computes
it well (Cunningham, Hennig, Lacoste-Julien 2011).

A kernel from r outputs has rank r: the process is f = Phi w + e, w ~ N(0, I_r), e ~ N(0, noise·I), with
Phi (n, r) the outputs themselves. A sweep then costs n·r² operations for a class, and not n³.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.keys import derive_seed
from genbench.subject.passes import channels_last
from genbench.subject.precision import precise
from genbench.subject.sampling import examples

if TYPE_CHECKING:
    from genbench.subject.inputs import Inputs
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["evidence_examples", "log_evidence", "log_orthant_probabilities", "nngp_features"]

_MOST_EXAMPLES, _LEAST_EXAMPLES = 1200, 200
_NUMBERS = 3e6
"""Numbers in all inputs of S together, or in a batch of them: 976 images of 3 × 32 × 32."""
_LEAST_AT_ONCE = 4
_NETWORKS, _OUTPUTS, _FEATURES = 24, 10, 240
"""Random networks at least, outputs used of each at most, and outputs of all of them together at least."""
_GROUPS = 4
_FEW = 3
"""Classes for which groups of networks are left out."""
_AT_ONCE = 10
"""Classes whose evidence is computed side by side; they settle together."""
_JITTER = 1e-3
"""Noise on the process, relative to its mean variance: keeps labels of equal inputs possible."""
_LOOSE = 0.02
"""Standard deviation of parameters that no module draws: embeddings are commonly drawn so."""


def evidence_examples(m: int, numbers: int) -> int:
    """n = |S| for m training examples of so many numbers each: all of them, as far as the budget goes.

    It depends on the data alone, so that all networks trained on them are judged on as many. Where the least
    number of examples is beyond the budget (images above 70 × 70), they are passed in batches.
    """
    return min(m, _MOST_EXAMPLES, max(_LEAST_EXAMPLES, int(_NUMBERS / numbers)))


def log_evidence(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """log P(C(S)) of one-vs-rest labels, for every class of a subset S of the training set.

    evidence (classes,); n, the size of S; networks, the number of random ones; jackknife (groups, few
    classes), the same with one quarter of them left out: how far the randomness of the kernel goes. The draws
    are a function of architecture and S alone: networks that share both get the same, to the bit.
    """
    size = evidence_examples(len(network.labels), network.inputs.shape[1:].numel())
    inputs, labels = examples(network, size)
    present = labels.unique()
    if len(present) < 2:
        raise NotApplicable("all training labels are equal")
    groups = nngp_features(network.model, inputs, _seed(network.model, inputs, labels))
    signs = precise(torch.where(labels == present[:, None], 1.0, -1.0))
    whole = _process(groups)
    sites = [_settled_sites(whole, part) for part in signs.split(_AT_ONCE)]
    evidence = [_log_mass(whole, *pair) for pair in zip(signs.split(_AT_ONCE), sites, strict=True)]
    few, near = signs[:_FEW], (sites[0][0][:_FEW], sites[0][1][:_FEW])
    left_out = []
    for g in range(_GROUPS):
        process = _process(groups[:g] + groups[g + 1 :])
        left_out.append(_log_mass(process, few, _settled_sites(process, few, near)))
    return {
        "evidence": torch.cat(evidence),
        "n": torch.tensor(len(labels), device="cpu"),
        "networks": torch.tensor(sum(group.shape[1] for group in groups), device="cpu"),
        "jackknife": torch.stack(left_out),
    }


def _seed(model: nn.Module, inputs: Inputs, labels: Tensor) -> int:
    shapes = [(name, list(values.shape)) for name, values in model.state_dict().items()]
    data = [_digest(inputs.split(_at_once(inputs))), _digest([labels])]
    return derive_seed("random networks", repr(model), shapes, data)


def _digest(batches: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(batch.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def _at_once(inputs: Inputs) -> int:
    """Inputs in one pass: as many as have the budget's numbers together, whatever the memory."""
    return max(_LEAST_AT_ONCE, int(_NUMBERS / inputs.shape[1:].numel()))


def nngp_features(model: nn.Module, inputs: Inputs, seed: int) -> list[Tensor]:
    """Outputs (n, networks, classes) of groups of random networks, in units of their own.

    Classes are alike in distribution, so some of them do for all.
    """
    model, device = copy.deepcopy(model), inputs.device
    groups: list[list[Tensor]] = [[] for _ in range(_GROUPS)]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for group in groups:
            while not group or len(group) < _draws(group[0].shape[1]):
                _draw_again(model.cpu())  # modules draw where their weights are
                group.append(precise(_outputs(model.to(device), inputs)))
    return [torch.stack(group, 1) for group in groups]


def _outputs(model: nn.Module, inputs: Inputs) -> Tensor:
    """Outputs on all inputs, with batch norm on their statistics: those of trained weights say nothing here.

    Where the inputs are passed in several batches, statistics are those of the first: a pass over all of them
    for every batch norm would make the cost grow as the square of the depth.
    """
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    size = _at_once(inputs)
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    if norms and len(inputs) > size:
        model(channels_last(inputs[:size]))
        for norm in norms:
            norm.eval()
    outputs: Tensor = torch.cat([model(channels_last(x))[:, :_OUTPUTS] for x in inputs.split(size)])
    return outputs


def _draws(outputs: int) -> int:
    """Networks in one group."""
    return max(_NETWORKS, math.ceil(_FEATURES / outputs)) // _GROUPS


Process = tuple[Tensor, float]
"""Phi (n, r) and the noise."""


def _process(groups: list[Tensor]) -> Process:
    """The process with the mean kernel of these groups, scaled, which orthants do not depend on."""
    features = torch.cat(groups, 1).flatten(1)
    scale = float(features.square().sum(1).mean())
    if not (math.isfinite(scale) and scale > 0):
        raise NotApplicable("random networks of this architecture have constant or infinite outputs")
    return _graded(features / math.sqrt(scale)), _JITTER


def _graded(features: Tensor) -> Tensor:
    """Features with the same kernel, orthogonal and the largest first, no more than there are rows.

    The matrices of a sweep are graded then: of such, single precision gives each part with its own digits.
    """
    graded: Tensor
    if features.shape[1] > len(features):
        values, vectors = torch.linalg.eigh(features @ features.T)
        graded = vectors * values.clamp(min=0).sqrt()
    else:
        graded = features @ torch.linalg.eigh(features.T @ features).eigenvectors
    return graded.flip(1)


def _draw_again(model: nn.Module) -> None:
    """Draw all weights as their modules initialise them; other parameters as Gaussians of one size.

    Nothing of the trained weights may be left: networks of one architecture are all alike here.
    """
    drawn = set()
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if callable(reset):
            reset()
            drawn |= {id(p) for p in part.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in drawn:
            parameter.normal_(0.0, _LOOSE) if parameter.numel() > 1 else parameter.fill_(1.0)


_SWEEPS, _SETTLED, _DAMPING = 60, 1e-2, 0.8
"""The evidence is stationary in the sites where they are settled (Seeger 2005): sites known to a hundredth
give it to a millionth or so."""

Sites = tuple[Tensor, Tensor]
"""Precisions and precisions times means of the Gaussian sites, (k, n) each."""


def log_orthant_probabilities(features: Tensor, noise: float, signs: Tensor) -> Tensor:
    """log P(sign f_i = s_i for all i) for every row s of `signs` (k, n), by parallel EP.

    f ~ N(0, Phi Phiᵀ + noise·I), `features` Phi (n, r). Each site replaces a step function by a Gaussian of
    the same mass, mean and variance under the others (Rasmussen & Williams 2006, section 3.6, with the limit
    of a steep probit).
    """
    process = (_graded(features), noise)
    return _log_mass(process, signs, _settled_sites(process, signs))


def _settled_sites(process: Process, signs: Tensor, start: Sites | None = None) -> Sites:
    """Sites that a sweep leaves where they are, found with matrices in single precision where these allow."""
    features, noise = process
    try:
        return _swept((features.float(), noise), signs, start)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a matrix too near to singular
        return _swept(process, signs, start)


def _swept(process: Process, signs: Tensor, start: Sites | None) -> Sites:
    tau, nu = start or (torch.zeros_like(signs), torch.zeros_like(signs))
    for _ in range(_SWEEPS):
        mean, variance = _marginals(process, tau, nu)
        cavity_tau = (1 / variance - tau).clamp(min=1e-10)
        cavity_nu = mean / variance - nu
        _, ratio, z = _moments(cavity_tau, cavity_nu, signs)
        # The tilted distribution is a truncated Gaussian; its site in natural parameters:
        shrink = (ratio * (z + ratio)).clamp(max=1 - 1e-12)
        new_tau = cavity_tau * shrink / (1 - shrink)
        tilted_mean = cavity_nu / cavity_tau + signs * ratio / cavity_tau.sqrt()
        new_nu = tilted_mean * (cavity_tau + new_tau) - cavity_nu
        step = _DAMPING * (new_tau - tau)
        tau, nu = tau + step, nu + _DAMPING * (new_nu - nu)
        if float((step.abs() / (tau.abs() + 1)).max()) < _SETTLED:
            break
    return tau, nu


def _log_mass(process: Process, signs: Tensor, sites: Sites) -> Tensor:
    tau, nu = sites
    mean, variance, half_log_det = _posterior(process, tau, nu)
    cavity_tau = (1 / variance - tau).clamp(min=1e-10)
    cavity_nu = mean / variance - nu
    log_mass, _, _ = _moments(cavity_tau, cavity_nu, signs)
    # R&W (3.65), rewritten so that no term grows without bound where a site is weak.
    each = (
        log_mass
        + 0.5 * (1 + tau / cavity_tau).log()
        + 0.5 * (cavity_nu.square() / cavity_tau - (cavity_nu + nu).square() / (cavity_tau + tau))
    )
    return each.sum(1) + 0.5 * (nu * mean).sum(1) - half_log_det


def _marginals(process: Process, tau: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances as `_posterior`, with matrices in the features' precision; by an inverse, for a
    product with it takes half the time of a solution."""
    features, noise = process
    tau = tau.clamp(min=0)
    damped = 1 + noise * tau
    weighted = (tau / damped).sqrt().to(features.dtype)[:, :, None] * features  # classes, n, r
    precision = weighted.mT @ weighted
    precision.diagonal(dim1=1, dim2=2).add_(1)
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(precision))
    pushed = (nu / damped).to(features.dtype) @ features
    w = (covariance @ pushed[:, :, None])[:, :, 0]
    spread = torch.mul(features @ covariance, features, out=weighted).sum(2)
    mean = ((w @ features.T).to(tau.dtype) + noise * nu) / damped
    variance = noise / damped + spread.to(tau.dtype) / damped.square()
    return mean, variance.clamp(min=1e-12)


def _posterior(process: Process, tau: Tensor, nu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Marginal means and variances of N(0, K)·prod of sites, and ½ log det(I + S^½ K S^½), for every row.

    Given g = Phi w, f_i has variance noise / (1 + noise·tau_i); the sites see g through that noise, with
    precisions tau / (1 + noise·tau) and nu / (1 + noise·tau) for precision times mean.
    """
    features, noise = process
    tau = tau.clamp(min=0)
    damped = 1 + noise * tau
    weighted = (tau / damped).sqrt()[:, :, None] * features  # classes, n, r
    eye = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    factor = torch.linalg.cholesky(eye + weighted.mT @ weighted)
    pushed = (nu / damped) @ features
    w = torch.cholesky_solve(pushed[:, :, None], factor)[:, :, 0]
    solved = torch.linalg.solve_triangular(factor, features.T, upper=False)
    mean = (w @ features.T + noise * nu) / damped
    variance = noise / damped + solved.square().sum(1) / damped.square()
    half_log_det = factor.diagonal(dim1=1, dim2=2).log().sum(1) + 0.5 * damped.log().sum(1)
    return mean, variance.clamp(min=1e-12), half_log_det


def _moments(cavity_tau: Tensor, cavity_nu: Tensor, signs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log Phi(z), phi(z)/Phi(z) and z, with z = s·(cavity mean) / (cavity standard deviation)."""
    z = signs * cavity_nu / cavity_tau.sqrt()
    log_mass = torch.special.log_ndtr(z)
    ratio = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - log_mass).exp()
    return log_mass, ratio, z
