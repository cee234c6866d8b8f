"""How much Gaussian noise the folded weights bear: the sigma of 001's PAC-Bayes measures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["DRAWS", "EPS", "sigma"]

DRAWS = 10
"""Of noise, at every step of the search."""
EPS = 1e-3
"""e of 001 (31) and (32): noise on weights that are zero, where it is in proportion to the weights."""
_DROP, _TOLERANCE, _STEPS = 0.1, 0.01, 15
_HIGH = 2.0

_GLANCE, _LOOK = 32, 256
"""Examples on which one draw is judged: few where the accuracy is far from the target, more near it.

Each draw has examples of its own, so that ten draws see ten times as many; what is left of sampling error is
well below the spread between draws.
"""

_FAR = 0.1
"""A first estimate of the drop this far from the target, some three standard errors, decides a step."""


def sigma(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, magnitude_aware: bool
) -> Part:
    """Bisection for the noise that lowers the mean training accuracy by .1 (SPEC.md section 4).

    sigma; error, the spread between draws over the slope of the accuracy there. A network that no noise up
    to the end of the interval hurts, one that never learnt for example, gets that end.
    """
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    search = _Search(network, network.folded.copy().module, generator, magnitude_aware)
    low, high, value = 0.0, _HIGH, 0.0
    tried = {0.0: 0.0}
    for _ in range(_STEPS):
        value = (low + high) / 2
        drops = search.drops(value)
        drop = float(drops.mean())
        tried[value] = drop
        if abs(drop - _DROP) < _TOLERANCE:
            break
        low, high = (low, value) if drop > _DROP else (value, high)
    else:
        if low == 0.0:
            raise NotApplicable(
                f"even noise of sigma = {value:.1e} costs more than a tenth of the training accuracy"
            )
    error = float(drops.std()) / math.sqrt(DRAWS) / _slope(tried, value)
    return {name: torch.tensor(v, dtype=torch.float64) for name, v in (("sigma", value), ("error", error))}


def _slope(tried: dict[float, float], value: float) -> float:
    """How fast the drop grows at `value`, from there to the nearest place where it differs much."""
    apart = [
        (abs(s - value), abs(d - tried[value])) for s, d in tried.items() if abs(d - tried[value]) > 0.05
    ]
    distance, rise = min(apart, default=(value, _DROP))
    return rise / distance


class _Search:
    """Accuracies under noise.

    The draws are the same at every sigma, but for their size: the mean accuracy then falls steadily, and
    bisection does not chase the noise between draws.
    """

    def __init__(
        self, network: TrainedNetwork, noisy: nn.Module, generator: torch.Generator, magnitude_aware: bool
    ) -> None:
        self._inputs, self._labels = network.inputs, network.labels
        self._noisy = noisy
        self._magnitude_aware = magnitude_aware
        self._clean, self._weights = _as_one_vector(list(noisy.parameters()))
        everything = torch.arange(len(self._labels))
        with torch.no_grad():
            self._right = torch.cat([self._hits(rows) for rows in everything.split(1024)])
        self._seeds = torch.randint(2**62, (DRAWS,), generator=generator).tolist()
        self._rows = [torch.randperm(len(self._labels), generator=generator)[:_LOOK] for _ in range(DRAWS)]

    def drops(self, value: float) -> Tensor:
        """Loss of accuracy of each draw: first on few examples, then on more if the mean is a close call."""
        few = self._lost(value, slice(_GLANCE))
        found = few.mean(1)
        if abs(float(found.mean()) - _DROP) > _FAR or len(self._labels) <= _GLANCE:
            return found
        return torch.cat([few, self._lost(value, slice(_GLANCE, None))], 1).mean(1)

    def _lost(self, value: float, part: slice) -> Tensor:
        """(draws, examples): 1 where noise spoils a right answer, −1 where it mends a wrong one."""
        found = []
        with torch.no_grad():
            for seed, rows in zip(self._seeds, self._rows, strict=True):
                self._perturb(value, torch.Generator().manual_seed(seed))
                chosen = rows[part]
                found.append(self._right[chosen].double() - self._hits(chosen).double())
        return torch.stack(found)

    def _perturb(self, value: float, generator: torch.Generator) -> None:
        noise = torch.randn(len(self._clean), generator=generator)
        spread = (value**2 * self._clean.square() + EPS**2).sqrt_() if self._magnitude_aware else value
        torch.add(self._clean, noise.mul_(spread), out=self._weights)

    def _hits(self, rows: Tensor) -> Tensor:
        hits: Tensor = self._noisy(self._inputs[rows]).argmax(1) == self._labels[rows]
        return hits


def _as_one_vector(parameters: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Their values in one vector, and a second vector of which the parameters are parts from now on."""
    values = torch.cat([p.detach().flatten() for p in parameters])
    weights, start = values.clone(), 0
    for parameter in parameters:
        parameter.data = weights[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return values, weights
