"""Loss and error of the network under Gaussian noise on theta, for the stochastic sharpness of 002."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.subject.fitting import fitting
from genbench.subject.gradients import trainable
from genbench.subject.sampling import drawn_by_size
from genbench.subject.vectors import as_one_vector, fill_normal

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["ISOTROPIC", "RELATIVE", "SCALE_EPS", "noise_scales", "weight_noise"]

RELATIVE = 0.05
"""r of 002 Eq. 17 and 23, and sigma_post of Eq. 25; the paper leaves them open."""
ISOTROPIC = 0.01
"""Standard deviation of isotropic noise."""
SCALE_EPS = 1e-3
"""eps_scale of 002 Eq. 23: noise on weights that are zero."""

_EXAMPLES = 128
_FLOOR = 0.1
"""Least size of an example that is drawn by size, as a share of the mean."""
_DRAWS, _ISOTROPIC_DRAWS = 40, 20
"""Of isotropic noise only the error is asked for, which fewer draws tell well enough."""


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
    """Draws of theta + noise, on all training examples or on 128 of them.

    They are drawn by the size of |p − y|² and 1 − |p|², p the predicted probabilities, which are known of
    all: on a network that fits its data a few examples carry the rise of the loss, and are all among them.

    log_likelihoods (draws, examples) and wrong (draws, examples), whether each example is classified wrongly;
    clean (examples,), the log-likelihoods at theta itself; chances (examples,) of being drawn: a sum over the
    training set is that over the examples of value / chance. The number of draws is fixed: stopping when
    they happen to agree would make them look surer than they are.
    """
    rows, chances = drawn_by_size(_sizes(parts.get("logits")["logits"], network.labels), _EXAMPLES, generator)
    model = copy.deepcopy(network.model)
    theta = trainable(model)
    scales = torch.cat([scale.flatten() for scale in noise_scales([p.detach() for p in theta], kind)])
    clean, noisy = as_one_vector(theta)
    judge = _judge(network, model, rows)
    with torch.no_grad():
        before, _ = judge()
        likelihoods: list[Tensor] = []
        wrong: list[Tensor] = []
        for _ in range(_ISOTROPIC_DRAWS if kind == "isotropic" else _DRAWS):
            torch.addcmul(clean, scales, fill_normal(noisy, generator), out=noisy)
            likelihood, mistakes = judge()
            likelihoods.append(likelihood)
            wrong.append(mistakes)
    return {
        "clean": before,
        "log_likelihoods": torch.stack(likelihoods),
        "wrong": torch.stack(wrong),
        "chances": chances,
    }


def _sizes(logits: Tensor, labels: Tensor) -> Tensor:
    """How much an example may matter to the loss under noise, in units of the mean."""
    p = logits.cpu().double().softmax(1)
    unsure = 1 - p.square().sum(1)
    p.scatter_add_(1, labels.cpu()[:, None], p.new_full((len(p), 1), -1.0))
    far = p.square().sum(1)
    unsure, far = (size / size.mean().clamp(min=1e-300) for size in (unsure.clamp(min=0), far))
    return _FLOOR + unsure + far


def _judge(network: TrainedNetwork, model: nn.Module, rows: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    inputs, labels = network.inputs.chosen(rows), network.labels.cpu()[rows]
    # No more than with gradients: of larger layers the kernel clears memory anew, a third of the time.
    size = fitting(network, _EXAMPLES)

    def judge() -> tuple[Tensor, Tensor]:
        logits = torch.cat([model(x).cpu() for x in inputs.split(size)]).double()
        likelihood = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]
        return likelihood, logits.argmax(1) != labels

    return judge
