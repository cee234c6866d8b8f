"""How much Gaussian noise the folded weights bear: the sigma of 001's PAC-Bayes measures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.passes import channels_last
from genbench.subject.vectors import as_one_vector, fill_normal

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["DRAWS", "EPS", "sigma"]

EPS = 1e-3
"""e of 001 (31) and (32): noise on weights that are zero, where it is in proportion to the weights."""
_DROP = 0.1
_LOW, _HIGH = math.log(2.0**-14), math.log(2.0)
"""Ends of the search, in log sigma."""

_GLANCE, _LEAST, _MOST = 32, 4, 10
"""A step of the bisection: examples that judge one draw, and the least and most draws."""
_CLEAR = 3.0
"""Standard errors between a drop and the target that settle on which side it is."""
_NEAR = 0.7
"""Bisection ends where the interval is this short in log sigma, or where a side cannot be told."""

_EXAMPLES, _LOOK_DRAWS = 40, 24
DRAWS = 4 * _LOOK_DRAWS
"""Of noise behind the value: four looks, two on either side of it."""
_APART = 0.2
"""Distance in log sigma from the middle to a look."""
_SETTLED, _ROUNDS = 0.4, 4
"""Looks further off than this from the solution are taken anew around it; so often at most."""


def sigma(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, magnitude_aware: bool
) -> Part:
    """The noise that lowers the mean training accuracy by .1 (SPEC.md section 4).

    Bisection of log sigma with few draws finds the place. Then four looks around it, of 24 draws each, give
    the line of drop^⅓ on log sigma, which is solved for .1: the drop itself bends up on trained networks, its
    logarithm down, and the cube root hardly at all. Every draw is fresh, with examples of its own from the
    whole training set, so that what scatters around the line is the error of draws and of examples alike.

    sigma; error. A network that no noise up to the end of the interval hurts, one that never learnt for
    example, gets that end.
    """
    # Outputs that other measures need too, in place of a pass of its own.
    right = parts.get("logits")["logits"].argmax(1).cpu() == network.labels.cpu()
    noise = _Noise(network, right, generator, magnitude_aware)
    middle = _bisected(noise)
    if middle is None:
        return _part(math.exp(_HIGH), 0.0)
    looks: list[tuple[float, Tensor]] = []
    for _ in range(_ROUNDS):
        for place in (middle - _APART, middle + _APART):
            looks.append((place, noise.drops(place, _LOOK_DRAWS, _EXAMPLES)))
        around = [(place, drops) for place, drops in looks if abs(place - middle) <= _SETTLED + _APART]
        solution, error = _solved(around)
        solution = min(max(solution, middle - _NEAR), middle + _NEAR, _HIGH)
        settled, middle = abs(solution - middle) <= _SETTLED, solution
        if settled and len(around) >= 4:
            break
    return _part(math.exp(middle), math.exp(middle) * error)


def _part(value: float, error: float) -> Part:
    return {
        name: torch.tensor(v, dtype=torch.float64, device="cpu")
        for name, v in (("sigma", value), ("error", error))
    }


def _bisected(noise: _Noise) -> float | None:
    """Where the drop is about .1, in log sigma; None if it is less up to the end of the interval."""
    low, high = _LOW, _HIGH
    while high - low > _NEAR:
        middle = (low + high) / 2
        side = _side(noise, middle)
        if side == 0:
            return middle
        low, high = (low, middle) if side > 0 else (middle, high)
    if low == _LOW:
        raise NotApplicable(
            f"even noise of sigma = {math.exp(high):.1e} costs more than a tenth of the training accuracy"
        )
    if high == _HIGH and _side(noise, high) < 0:
        return None
    return (low + high) / 2


def _side(noise: _Noise, place: float) -> int:
    """1 if the drop there is above .1, −1 if it is below, 0 if ten draws cannot tell."""
    drops = noise.drops(place, _LEAST, _GLANCE)
    while True:
        excess = float(drops.mean()) - _DROP
        # Few draws may agree by chance: their spread is taken as no less than that of as many examples.
        spread = max(float(drops.std()), math.sqrt(_DROP * (1 - _DROP) / _GLANCE))
        if abs(excess) > _CLEAR * spread / math.sqrt(len(drops)):
            return 1 if excess > 0 else -1
        if len(drops) == _MOST:
            return 0
        drops = torch.cat([drops, noise.drops(place, 1, _GLANCE)])


def _solved(looks: list[tuple[float, Tensor]]) -> tuple[float, float]:
    """Where the line of drop^⅓ on log sigma is at .1^⅓, and its standard error.

    A look is the mean of its draws; the error is the larger of what the draws' spread and what the looks'
    distances from the line say, divided by the slope.
    """
    x = torch.tensor([place for place, _ in looks], dtype=torch.float64, device="cpu")
    drop = torch.stack([drops.mean() for _, drops in looks])
    variance = torch.stack([drops.var() / len(drops) for _, drops in looks])
    target = _DROP ** (1 / 3)
    # The root of a noisy mean is too low by 1/9·drop^(−5/3)·variance; far below the target it means nothing.
    y = drop.clamp(min=_DROP / 5).pow(1 / 3) + variance * (target / _DROP**2 / 9)
    spread = variance.mean() * (target / _DROP / 3) ** 2  # of y, by the delta method at the target
    centre = x.mean()
    sxx = (x - centre).square().sum()
    slope = float(((x - centre) * (y - y.mean())).sum() / sxx)
    if slope <= _FLAT:
        # No rise to be seen between the looks: stay, as unsure as the looks are far apart.
        return float(centre), 2 * _APART
    solution = float(centre) + (target - float(y.mean())) / slope
    residual = y - y.mean() - slope * (x - centre)
    if len(looks) > 2:
        spread = torch.maximum(spread, residual.square().sum() / (len(looks) - 2))
    uncertainty = float(spread) * (1 / len(looks) + float((solution - centre).square() / sxx))
    return solution, math.sqrt(uncertainty) / slope


_FLAT = 0.1
"""A slope of drop^⅓ this small is none: of trained networks it is .3 to 1.1."""


class _Noise:
    """Accuracy lost under noise."""

    def __init__(
        self, network: TrainedNetwork, right: Tensor, generator: torch.Generator, magnitude_aware: bool
    ) -> None:
        if isinstance(network.folded, NotApplicable):
            raise network.folded
        self._inputs, self._labels, self._right = network.inputs, network.labels.cpu(), right
        # No more than with gradients: of larger layers the kernel clears memory anew, a third of the time.
        self._most = fitting(network, max(_EXAMPLES, _GLANCE))
        self._noisy = network.folded.with_own_tensors().module
        self._magnitude_aware = magnitude_aware
        self._generator = generator
        self._clean, self._weights = as_one_vector(list(self._noisy.parameters()))

    def drops(self, place: float, draws: int, examples: int) -> Tensor:
        """Loss of accuracy of each draw at log sigma = `place`, on as many examples of its own."""
        found = []
        with torch.no_grad():
            for _ in range(draws):
                self._perturb(math.exp(place))
                rows = torch.randperm(len(self._labels), generator=self._generator, device="cpu")[:examples]
                found.append((self._right[rows].double() - self._hits(rows).double()).mean())
        return torch.stack(found)

    def _perturb(self, value: float) -> None:
        noise = fill_normal(self._weights, self._generator)
        if self._magnitude_aware:
            noise *= (self._clean * value).square_().add_(EPS**2).sqrt_()
        else:
            noise *= value
        noise += self._clean

    def _hits(self, rows: Tensor) -> Tensor:
        batches = (channels_last(self._inputs[some]) for some in rows.split(self._most))
        answers = [self._noisy(batch).argmax(1).cpu() for batch in batches]
        return torch.cat(answers) == self._labels[rows]
