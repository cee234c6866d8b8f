"""Gradients of the training loss at the trained weights: of batches, along theta, at the input."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy, embedding_bag

from genbench.subject.fitting import fitting
from genbench.subject.precision import wide
from genbench.subject.sampling import double_backward, example_order, examples
from genbench.subject.vectors import as_one_vector

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["RADII", "SAM_RADIUS", "batch_gradients", "input_gradients", "scores", "trainable"]

_BATCHES, _BATCH = 24, 32
"""Mini-batches of the gradient statistics: their number and size."""
_KNOWN, _POOL = 1024, 2**14
"""Batches of which the errors of the logits are looked at, and the most examples that make them."""

SAM_RADIUS = 0.05
"""rho of one-step sharpness: the default of Foret et al. (SAM); 002 gives none."""
RADII = (0.01, 10**-1.5, 0.1, 10**-0.5, 1.0)
"""The log-spaced radii that adaptive sharpness scans."""

_SCORED, _AT_INPUT = 1024, 512
"""Examples for the derivative along theta and for gradients at the input."""
_PASS = 128
"""Of them in one pass, at most."""
_ROUNDING = 1e-2
"""Share of the shortest step that rounding may take before everything is done in double precision."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """theta, in the order of the model's parameters."""
    return [p for p in model.parameters() if p.requires_grad]


def batch_gradients(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Norms of mini-batch gradients g_b, and the loss after one ascent step of each radius.

    norms (B,); losses (B, 2 + radii): at theta, after a step of SAM_RADIUS, after a step of each of RADII.
    doubts (B,): sqrt(sum_n |d_n|² + |sum_n d_n|²) over the examples of the batch, d = p − y the gradient in
    the logits. |g_b| is nearly in proportion to it, and the logits are known of all examples: mean_doubt,
    that of 1,024 batches, says how far the B batches are from typical ones.
    """
    order = example_order(len(network.labels))[:_POOL]
    positions = torch.arange(len(order), device="cpu")
    batches = _batches(positions, _BATCHES, generator)
    ascent = _Ascent(network)
    logits = ascent.logits(order) if ascent.double else parts.get("logits")["logits"].cpu()[order]
    errors = _errors(logits, network.labels.cpu()[order])
    norms, losses = [], []
    for rows in order[batches]:
        loss, gradient = ascent.gradient(rows)
        norms.append(float(torch.linalg.vector_norm(gradient, dtype=wide(network.device))))
        losses.append([loss, *ascent.losses(rows, gradient, norms[-1])])
    random = _batches(torch.randperm(len(order), generator=generator, device="cpu"), _KNOWN, generator)
    return {
        "norms": torch.tensor(norms, dtype=torch.float64, device="cpu"),
        "losses": torch.tensor(losses, dtype=torch.float64, device="cpu"),
        "doubts": _doubts(errors, batches),
        "mean_doubt": _doubts(errors, random).mean(),
    }


def _batches(order: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, size) of the numbers in `order`: batches without one in common, then of random orders."""
    size = max(1, min(_BATCH, len(order) // 2))
    whole = len(order) // size
    found = []
    for _ in range(-(-count // whole)):
        found.append(order[: whole * size].view(whole, size))
        order = order[torch.randperm(len(order), generator=generator, device="cpu")]
    return torch.cat(found)[:count]


def _errors(logits: Tensor, labels: Tensor) -> Tensor:
    """p − y, (n, classes)."""
    p = logits.double().softmax(1)
    return p.scatter_add_(1, labels[:, None], p.new_full((len(p), 1), -1.0))


def _doubts(errors: Tensor, batches: Tensor) -> Tensor:
    together = embedding_bag(batches, errors, mode="sum")
    return (errors.square().sum(1)[batches].sum(1) + together.square().sum(1)).sqrt()


class _Ascent:
    """The network at theta and at steps uphill from it.

    In double precision where the weights are so large that single precision would round a step away.
    """

    def __init__(self, network: TrainedNetwork) -> None:
        self._network = network
        self._model = copy.deepcopy(network.model)
        norms = [float(p.detach().norm(dtype=wide(p.device))) for p in trainable(self._model)]
        length = math.hypot(*norms)
        self.double = length * torch.finfo(torch.float32).eps > _ROUNDING * min(RADII)
        self.double &= wide(network.device) == torch.float64
        if self.double:
            self._model = self._model.double()
        self._parameters = trainable(self._model)
        self.theta, self._moved = as_one_vector(self._parameters)
        self._size = fitting(network, _BATCH, 2.0 if self.double else 1.0)

    def _losses(self, rows: Tensor) -> Iterator[Tensor]:
        """What micro-batches add to the mean loss of the batch."""
        for some in rows.split(self._size):
            logits = self._model(self._inputs(some))
            labels = self._network.labels[some]
            yield cross_entropy(logits.to(wide(logits.device)), labels, reduction="sum") / len(rows)

    def logits(self, rows: Tensor) -> Tensor:
        """Outputs at theta, on the CPU."""
        self._moved.copy_(self.theta)
        with torch.no_grad():
            found = [self._model(self._inputs(some)).cpu() for some in rows.split(self._size)]
        return torch.cat(found)

    def _inputs(self, rows: Tensor) -> Tensor:
        inputs = self._network.inputs[rows]
        return inputs.double() if self.double else inputs

    def gradient(self, rows: Tensor) -> tuple[float, Tensor]:
        """Loss of a batch at theta, and its gradient."""
        self._moved.copy_(self.theta)
        total, gradient = 0.0, torch.zeros_like(self.theta, dtype=wide(self.theta.device))
        for loss in self._losses(rows):
            total += loss.item()
            found = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
            gradient += torch.cat([g.flatten() for g in found])
        return total, gradient.to(self.theta.dtype)

    def losses(self, rows: Tensor, gradient: Tensor, norm: float) -> list[float]:
        """The batch loss at theta + rho·g/|g| for every rho (002 Eq. 13, 14); at theta itself if g = 0."""
        found = []
        with torch.no_grad():
            for radius in (SAM_RADIUS, *RADII):
                torch.add(self.theta, gradient, alpha=radius / norm if norm > 0 else 0.0, out=self._moved)
                found.append(sum(loss.item() for loss in self._losses(rows)))
        return found


def scores(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """theta·g_n, g_n the gradient of log p(y_n | x_n): exact, by the logits' derivative along theta."""
    inputs, labels = examples(network, _SCORED)
    size = fitting(network, _PASS)
    theta = {name: p.detach() for name, p in network.model.named_parameters() if p.requires_grad}
    products = []
    with double_backward():
        for x, y in zip(inputs.split(size), labels.split(size), strict=True):
            logits, change = jvp(  # type: ignore[misc]  # no auxiliary output was asked for
                lambda p, x=x: functional_call(network.model, p, (x,)), (theta,), (theta,)
            )
            expected = (logits.softmax(1) * change).sum(1)
            products.append((change.gather(1, y[:, None])[:, 0] - expected).detach().cpu())
    return {"products": torch.cat(products).double()}


def input_gradients(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """|gradient of the loss of one example with respect to its input|, (n,)."""
    inputs, labels = examples(network, _AT_INPUT)
    size = fitting(network, _PASS)
    norms = []
    for x, y in zip(inputs.split(size), labels.split(size), strict=True):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(network.model(x), y, reduction="sum"), x)
        norms.append(gradient.flatten(1).cpu().double().norm(dim=1))
    return {"norms": torch.cat(norms)}
