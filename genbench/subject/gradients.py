"""Gradients of the training loss at the trained weights: of batches, along theta, at the input."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy

from genbench.subject.sampling import double_backward, examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["RADII", "SAM_RADIUS", "batch_gradients", "input_gradients", "scores", "trainable"]

_BATCHES, _BATCH = 16, 32
"""Mini-batches of the gradient statistics, drawn without replacement: their number and size."""

SAM_RADIUS = 0.05
"""rho of one-step sharpness: the default of Foret et al. (SAM); 002 gives none."""
RADII = (0.01, 10**-1.5, 0.1, 10**-0.5, 1.0)
"""The log-spaced radii that adaptive sharpness scans."""

_SCORED, _AT_INPUT = 1024, 512
"""Examples for the derivative along theta and for gradients at the input."""
_EPS = 1e-3
"""eps of 002 Eq. 37, which the paper leaves open, as a share of the mean over coordinates of g²."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """theta, in the order of the model's parameters."""
    return [p for p in model.parameters() if p.requires_grad]


def batch_gradients(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Statistics of mini-batch gradients g_b, and the loss after one ascent step of each radius.

    norms (B,); squares (B,), the mean over coordinates of g_b²; deviations (B,), that of (g_b − mean g)²;
    variance_ratios (3,), the mean over coordinates of Var / (mean² + eps): of all batches and of either half;
    losses (B, 2 + radii): at theta, after a step of SAM_RADIUS, after a step of each of RADII.
    """
    theta = trainable(network.model)
    moments = [_Moments(theta) for _ in range(2)]
    squares, losses = [], []
    batches = _batches(len(network.labels), generator)
    for number, rows in enumerate(batches):
        inputs, labels = network.inputs[rows], network.labels[rows]
        loss = cross_entropy(network.model(inputs), labels)
        gradient = torch.autograd.grad(loss, theta)
        squares.append(_mean_square(gradient))
        losses.append([loss.item(), *_ascended(network, theta, gradient, inputs, labels)])
        moments[number % 2].add(gradient)
    both = _Moments.joined(*moments)
    size = sum(p.numel() for p in theta)
    mean_square = torch.tensor(squares, dtype=torch.float64)
    return {
        "norms": (mean_square * size).sqrt(),
        "squares": mean_square,
        "deviations": _deviations(network, theta, batches, both.mean, size),
        "variance_ratios": torch.tensor([m.ratio() for m in (both, *moments)], dtype=torch.float64),
        "losses": torch.tensor(losses, dtype=torch.float64),
    }


def _batches(m: int, generator: torch.Generator) -> list[Tensor]:
    size = max(1, min(_BATCH, m // 2))
    rows = torch.randperm(m, generator=generator)
    return [batch for batch in rows.split(size) if len(batch) == size][:_BATCHES]


def _mean_square(gradient: tuple[Tensor, ...]) -> float:
    total = sum(float(g.double().square().sum()) for g in gradient)
    return total / sum(g.numel() for g in gradient)


def _ascended(
    network: TrainedNetwork,
    theta: list[nn.Parameter],
    gradient: tuple[Tensor, ...],
    inputs: Tensor,
    labels: Tensor,
) -> list[float]:
    """The batch loss at theta + rho·g/|g| for every rho (002 Eq. 13, 14); at theta itself if g = 0."""
    size = sum(g.numel() for g in gradient)
    norm = (_mean_square(gradient) * size) ** 0.5
    names = [name for name, p in network.model.named_parameters() if p.requires_grad]
    losses = []
    with torch.no_grad():
        for radius in (SAM_RADIUS, *RADII):
            scale = radius / norm if norm > 0 else 0.0
            moved = {n: p + scale * g for n, p, g in zip(names, theta, gradient, strict=True)}
            losses.append(float(cross_entropy(functional_call(network.model, moved, (inputs,)), labels)))
    return losses


class _Moments:
    """Mean and sum of squared deviations of every coordinate, updated batch by batch (Welford)."""

    def __init__(self, like: list[nn.Parameter]) -> None:
        self.count = 0
        self.mean = [torch.zeros_like(p, requires_grad=False) for p in like]
        self.squares = [torch.zeros_like(p, requires_grad=False) for p in like]

    def add(self, gradient: tuple[Tensor, ...]) -> None:
        self.count += 1
        for mean, squares, g in zip(self.mean, self.squares, gradient, strict=True):
            step = g - mean
            mean += step / self.count
            squares += step * (g - mean)

    @classmethod
    def joined(cls, a: _Moments, b: _Moments) -> _Moments:
        out = cls.__new__(cls)
        out.count = a.count + b.count
        share = b.count / max(out.count, 1)
        out.mean = [x + (y - x) * share for x, y in zip(a.mean, b.mean, strict=True)]
        out.squares = [
            s + t + (y - x).square() * (a.count * share)
            for s, t, x, y in zip(a.squares, b.squares, a.mean, b.mean, strict=True)
        ]
        return out

    def ratio(self) -> float:
        """Mean over coordinates of Var / (mean² + eps) (002 Eq. 37); 0 if every gradient is 0."""
        if self.count == 0:
            return 0.0
        size = sum(m.numel() for m in self.mean)
        eps = _EPS * sum(float(m.double().square().sum()) for m in self.mean) / size
        if eps == 0:
            return math.inf if any(bool(s.any()) for s in self.squares) else 0.0
        total = sum(
            float((s.double() / self.count / (m.double().square() + eps)).sum())
            for s, m in zip(self.squares, self.mean, strict=True)
        )
        return total / size


def _deviations(
    network: TrainedNetwork, theta: list[nn.Parameter], batches: list[Tensor], mean: list[Tensor], size: int
) -> Tensor:
    """|g_b − g|² / d of every batch; the gradients are taken again, for they would not all fit in memory."""
    out = []
    for rows in batches:
        loss = cross_entropy(network.model(network.inputs[rows]), network.labels[rows])
        gradient = torch.autograd.grad(loss, theta)
        out.append(sum(float((g - m).double().square().sum()) for g, m in zip(gradient, mean, strict=True)))
    return torch.tensor(out, dtype=torch.float64) / size


def scores(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """theta·g_n, g_n the gradient of log p(y_n | x_n): exact, by the logits' derivative along theta."""
    inputs, labels = examples(network, _SCORED)
    theta = {name: p.detach() for name, p in network.model.named_parameters() if p.requires_grad}
    products = []
    with double_backward():
        for x, y in zip(inputs.split(128), labels.split(128), strict=True):
            logits, change = jvp(  # type: ignore[misc]  # no auxiliary output was asked for
                lambda p, x=x: functional_call(network.model, p, (x,)), (theta,), (theta,)
            )
            expected = (logits.softmax(1) * change).sum(1)
            products.append((change.gather(1, y[:, None])[:, 0] - expected).detach())
    return {"products": torch.cat(products).double()}


def input_gradients(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """|gradient of the loss of one example with respect to its input|, (n,)."""
    inputs, labels = examples(network, _AT_INPUT)
    norms = []
    for x, y in zip(inputs.split(128), labels.split(128), strict=True):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(network.model(x), y, reduction="sum"), x)
        norms.append(gradient.flatten(1).double().norm(dim=1))
    return {"norms": torch.cat(norms)}
