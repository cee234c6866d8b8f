"""Loss and error of the network under Gaussian noise on theta, for the stochastic sharpness of 002."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.subject.gradients import trainable
from genbench.subject.sampling import RELATIVE_ERROR, examples, relative_error

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["GROUP", "ISOTROPIC", "RELATIVE", "SCALE_EPS", "noise_scales", "weight_noise"]

RELATIVE = 0.05
"""r of 002 Eq. 17 and 23, and sigma_post of Eq. 25; the paper leaves them open."""
ISOTROPIC = 0.01
"""Standard deviation of isotropic noise."""
SCALE_EPS = 1e-3
"""eps_scale of 002 Eq. 23: noise on weights that are zero."""
GROUP = 5
"""Draws whose largest loss increase makes one sharpness (the K of 002 Eq. 18 and 24)."""

_EXAMPLES = 256
_LEAST_GROUPS, _MOST_GROUPS = 3, 6
_ISOTROPIC_GROUPS = 2
"""Of isotropic noise only the error is asked for, which ten draws tell well enough."""


def noise_scales(theta: list[Tensor], kind: str) -> list[Tensor]:
    """Standard deviation of the noise on each parameter.

    "isotropic": ISOTROPIC; "tensor": r·std(p) for each tensor p (002 Eq. 17), 0 for a tensor of one number;
    "magnitude": r·(|p| + eps_scale) (Eq. 23).
    """
    if kind == "isotropic":
        return [torch.full_like(p, ISOTROPIC) for p in theta]
    if kind == "magnitude":
        return [RELATIVE * (p.abs() + SCALE_EPS) for p in theta]
    return [torch.full_like(p, RELATIVE * float(p.std()) if p.numel() > 1 else 0.0) for p in theta]


def weight_noise(network: TrainedNetwork, parts: PartSource, generator: torch.Generator, kind: str) -> Part:
    """Groups of draws of theta + noise, on at most 256 training examples.

    increases (draws,), of the mean loss; errors (draws,), shares of examples classified wrongly;
    log_likelihoods (draws, examples); examples, their number. Draws come in groups of GROUP, until the mean
    over groups of the largest increase is known to 5 % or the budget ends.
    """
    inputs, labels = examples(network, _EXAMPLES)
    model = copy.deepcopy(network.model)
    theta = trainable(model)
    clean = [p.detach().clone() for p in theta]
    scales = noise_scales(clean, kind)
    judge = _judge(model, inputs, labels)
    with torch.no_grad():
        before = float(judge()[0].mean())
        likelihoods: list[Tensor] = []
        errors: list[float] = []
        largest: list[float] = []
        least, most = _LEAST_GROUPS, _MOST_GROUPS
        if kind == "isotropic":
            least = most = _ISOTROPIC_GROUPS
        while len(largest) < least or (len(largest) < most and relative_error(largest) > RELATIVE_ERROR):
            for _ in range(GROUP):
                for parameter, value, scale in zip(theta, clean, scales, strict=True):
                    noise = torch.randn(value.shape, generator=generator)
                    parameter.copy_(value + scale * noise)
                likelihood, error = judge()
                likelihoods.append(likelihood)
                errors.append(error)
            largest.append(max(before - float(group.mean()) for group in likelihoods[-GROUP:]))
    stacked = torch.stack(likelihoods)
    return {
        "increases": before - stacked.mean(1),
        "errors": torch.tensor(errors, dtype=torch.float64),
        "log_likelihoods": stacked,
    }


def _judge(model: torch.nn.Module, inputs: Tensor, labels: Tensor) -> Callable[[], tuple[Tensor, float]]:
    def judge() -> tuple[Tensor, float]:
        logits = torch.cat([model(x) for x in inputs.split(128)]).double()
        likelihood = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]
        return likelihood, float((logits.argmax(1) != labels).double().mean())

    return judge
