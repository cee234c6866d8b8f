"""Random networks of one architecture as a Gaussian process: its kernel, and the evidence for labels.

The kernel of a wide network is the covariance of its outputs over random initialisations (NNGP); here it is
estimated from draws of the architecture itself. The probability that such a process classifies all examples
right, its marginal likelihood P(C(S)) in 000 Eq. 24, is that of an orthant; expectation propagation computes
it well (Cunningham, Hennig, Lacoste-Julien 2011).
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.subject.sampling import examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["log_evidence", "log_orthant_probabilities", "nngp_kernel"]

_EXAMPLES = 200
_NETWORKS = 24
_GROUPS = 4
_FEW = 3
"""Classes for which groups of networks are left out."""
_JITTER = 1e-3
"""Noise on the process, relative to its mean variance: keeps labels of equal inputs possible."""


def log_evidence(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """log P(C(S)) of one-vs-rest labels, for every class of a subset S of the training set.

    evidence (classes,); n, the size of S; jackknife (groups, few classes), the same with one quarter of the
    random networks left out: how far the randomness of the kernel goes.
    """
    inputs, labels = examples(network, _EXAMPLES)
    present = labels.unique()
    if len(present) < 2:
        raise NotApplicable("all training labels are equal")
    kernels = _kernels(network, inputs, generator)
    signs = torch.where(labels == present[:, None], 1.0, -1.0).double()
    whole = torch.stack(kernels).mean(0)
    sites = _settled_sites(whole, signs)
    few, near = signs[:_FEW], (sites[0][:_FEW], sites[1][:_FEW])
    left_out = []
    for g in range(_GROUPS):
        kernel = torch.stack(kernels[:g] + kernels[g + 1 :]).mean(0)
        left_out.append(_log_mass(kernel, few, _settled_sites(kernel, few, near)))
    return {
        "evidence": _log_mass(whole, signs, sites),
        "n": torch.tensor(len(labels)),
        "jackknife": torch.stack(left_out),
    }


def nngp_kernel(outputs: Tensor) -> Tensor:
    """(n, n) second moment of outputs (networks, n, classes); classes are alike in distribution."""
    outputs = outputs.double()
    return torch.einsum("mic,mjc->ij", outputs, outputs) / (outputs.shape[0] * outputs.shape[2])


def _kernels(network: TrainedNetwork, inputs: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Kernels of groups of random networks; with a common scale, which orthants do not depend on."""
    model = copy.deepcopy(network.model)
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train()  # statistics of these inputs: those of the trained network say nothing about others
    per_group = _NETWORKS // _GROUPS
    kernels = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for _ in range(_GROUPS):
            outputs = []
            for _ in range(per_group):
                _draw_again(model)
                outputs.append(model(inputs))
            kernels.append(nngp_kernel(torch.stack(outputs)))
    scale = float(torch.stack(kernels).mean(0).diagonal().mean())
    if not (math.isfinite(scale) and scale > 0):
        raise NotApplicable("random networks of this architecture have constant or infinite outputs")
    eye = torch.eye(len(inputs), dtype=torch.float64)
    return [kernel / scale + _JITTER * eye for kernel in kernels]


def _draw_again(model: nn.Module) -> None:
    """Draw all weights as their modules initialise them; other parameters as Gaussians of their own size."""
    drawn = set()
    for part in model.modules():
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if callable(reset):
            reset()
            drawn |= {id(p) for p in part.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in drawn and parameter.numel() > 1:
            parameter.normal_(0.0, float(parameter.square().mean().sqrt()))


_SWEEPS, _SETTLED, _DAMPING = 60, 1e-3, 0.8

Sites = tuple[Tensor, Tensor]
"""Precisions and precisions times means of the Gaussian sites, (k, n) each."""


def log_orthant_probabilities(kernel: Tensor, signs: Tensor) -> Tensor:
    """log P(sign f_i = s_i for all i), f ~ N(0, kernel), for every row s of `signs` (k, n), by parallel EP.

    Each site replaces a step function by a Gaussian of the same mass, mean and variance under the others
    (Rasmussen & Williams 2006, section 3.6, with the limit of a steep probit).
    """
    return _log_mass(kernel, signs, _settled_sites(kernel, signs))


def _settled_sites(kernel: Tensor, signs: Tensor, start: Sites | None = None) -> Sites:
    tau, nu = start or (torch.zeros_like(signs), torch.zeros_like(signs))
    for _ in range(_SWEEPS):
        mean, variance, _ = _posterior(kernel, tau, nu)
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


def _log_mass(kernel: Tensor, signs: Tensor, sites: Sites) -> Tensor:
    tau, nu = sites
    mean, variance, half_log_det = _posterior(kernel, tau, nu)
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


def _posterior(kernel: Tensor, tau: Tensor, nu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Marginal means and variances of N(0, K)·prod of sites, and ½ log det(I + S^½ K S^½), for every row."""
    root = tau.clamp(min=0).sqrt()
    eye = torch.eye(len(kernel), dtype=kernel.dtype)
    factor = torch.linalg.cholesky(eye + root[:, :, None] * kernel * root[:, None, :])
    solved = torch.linalg.solve_triangular(factor, root[:, :, None] * kernel, upper=False)
    variance = kernel.diagonal() - solved.square().sum(1)
    pushed = torch.einsum("ij,kj->ki", kernel, nu)
    inner = torch.einsum("kij,kj->ki", solved, nu)
    mean = pushed - torch.einsum("kij,ki->kj", solved, inner)
    return mean, variance.clamp(min=1e-12), factor.diagonal(dim1=1, dim2=2).log().sum(1)


def _moments(cavity_tau: Tensor, cavity_nu: Tensor, signs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log Phi(z), phi(z)/Phi(z) and z, with z = s·(cavity mean) / (cavity standard deviation)."""
    z = signs * cavity_nu / cavity_tau.sqrt()
    log_mass = torch.special.log_ndtr(z)
    ratio = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - log_mass).exp()
    return log_mass, ratio, z
