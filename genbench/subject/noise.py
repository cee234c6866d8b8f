"""Loss and error of the network under Gaussian noise on theta, for the stochastic sharpness of 002."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.subject.gradients import trainable
from genbench.subject.sampling import examples
from genbench.subject.vectors import as_one_vector

if TYPE_CHECKING:
    from genbench.subject.inputs import Inputs
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["ISOTROPIC", "RELATIVE", "SCALE_EPS", "noise_scales", "weight_noise"]

RELATIVE = 0.05
"""r of 002 Eq. 17 and 23, and sigma_post of Eq. 25; the paper leaves them open."""
ISOTROPIC = 0.01
"""Standard deviation of isotropic noise."""
SCALE_EPS = 1e-3
"""eps_scale of 002 Eq. 23: noise on weights that are zero."""

_EXAMPLES = 256
_DRAWS, _ISOTROPIC_DRAWS = 20, 10
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
    """Draws of theta + noise, on at most 256 training examples.

    log_likelihoods (draws, examples) and wrong (draws, examples), whether each example is classified wrongly;
    clean (examples,), the log-likelihoods at theta itself. The number of draws is fixed: stopping when they
    happen to agree would make them look surer than they are.
    """
    inputs, labels = examples(network, _EXAMPLES)
    model = copy.deepcopy(network.model)
    theta = trainable(model)
    scales = torch.cat([scale.flatten() for scale in noise_scales([p.detach() for p in theta], kind)])
    clean, noisy = as_one_vector(theta)
    judge = _judge(model, inputs, labels)
    with torch.no_grad():
        before, _ = judge()
        likelihoods: list[Tensor] = []
        wrong: list[Tensor] = []
        for _ in range(_ISOTROPIC_DRAWS if kind == "isotropic" else _DRAWS):
            torch.addcmul(clean, scales, torch.randn(clean.shape, generator=generator), out=noisy)
            likelihood, mistakes = judge()
            likelihoods.append(likelihood)
            wrong.append(mistakes)
    return {"clean": before, "log_likelihoods": torch.stack(likelihoods), "wrong": torch.stack(wrong)}


def _judge(model: torch.nn.Module, inputs: Inputs, labels: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    def judge() -> tuple[Tensor, Tensor]:
        logits = torch.cat([model(x) for x in inputs.split(128)]).double()
        likelihood = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]
        return likelihood, logits.argmax(1) != labels

    return judge
