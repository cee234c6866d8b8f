"""Gradients of the training loss at the trained weights: of batches, along theta, at the input."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy

from genbench.subject.sampling import double_backward, example_order, examples
from genbench.subject.vectors import as_one_vector

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["RADII", "SAM_RADIUS", "batch_gradients", "input_gradients", "scores", "trainable"]

_BATCHES, _BATCH = 16, 32
"""Mini-batches of the gradient statistics: their number and size."""

SAM_RADIUS = 0.05
"""rho of one-step sharpness: the default of Foret et al. (SAM); 002 gives none."""
RADII = (0.01, 10**-1.5, 0.1, 10**-0.5, 1.0)
"""The log-spaced radii that adaptive sharpness scans."""

_SCORED, _AT_INPUT = 1024, 512
"""Examples for the derivative along theta and for gradients at the input."""
_ROUNDING = 1e-2
"""Share of the shortest step that rounding may take before everything is done in double precision."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """theta, in the order of the model's parameters."""
    return [p for p in model.parameters() if p.requires_grad]


def batch_gradients(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Norms of mini-batch gradients g_b, and the loss after one ascent step of each radius.

    norms (B,); losses (B, 2 + radii): at theta, after a step of SAM_RADIUS, after a step of each of RADII.
    """
    ascent = _Ascent(network)
    norms, losses = [], []
    for rows in _batches(len(network.labels), generator):
        loss, gradient = ascent.gradient(rows)
        norms.append(torch.linalg.vector_norm(gradient, dtype=torch.float64))
        losses.append([loss, *ascent.losses(rows, gradient, float(norms[-1]))])
    return {"norms": torch.stack(norms), "losses": torch.tensor(losses, dtype=torch.float64)}


def _batches(m: int, generator: torch.Generator) -> list[Tensor]:
    """Batches without an example in common, of the fixed order; then of random orders, once it is used up."""
    size = max(1, min(_BATCH, m // 2))
    found: list[Tensor] = []
    while len(found) < _BATCHES:
        order = torch.randperm(m, generator=generator) if found else example_order(m)
        found += [rows for rows in order.split(size) if len(rows) == size]
    return found[:_BATCHES]


class _Ascent:
    """The network at theta and at steps uphill from it.

    In double precision where the weights are so large that single precision would round a step away.
    """

    def __init__(self, network: TrainedNetwork) -> None:
        self._network = network
        self._model = copy.deepcopy(network.model)
        length = torch.stack([p.detach().double().norm() for p in trainable(self._model)]).norm()
        self._double = float(length) * torch.finfo(torch.float32).eps > _ROUNDING * min(RADII)
        if self._double:
            self._model = self._model.double()
        self._parameters = trainable(self._model)
        self.theta, self._moved = as_one_vector(self._parameters)

    def _data(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self._network.inputs[rows]
        return inputs.double() if self._double else inputs, self._network.labels[rows]

    def gradient(self, rows: Tensor) -> tuple[float, Tensor]:
        """Loss of a batch at theta, and its gradient."""
        inputs, labels = self._data(rows)
        self._moved.copy_(self.theta)
        loss = cross_entropy(self._model(inputs), labels)
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        return loss.item(), torch.cat([g.flatten() for g in found])

    def losses(self, rows: Tensor, gradient: Tensor, norm: float) -> list[float]:
        """The batch loss at theta + rho·g/|g| for every rho (002 Eq. 13, 14); at theta itself if g = 0."""
        inputs, labels = self._data(rows)
        found = []
        with torch.no_grad():
            for radius in (SAM_RADIUS, *RADII):
                torch.add(self.theta, gradient, alpha=radius / norm if norm > 0 else 0.0, out=self._moved)
                found.append(float(cross_entropy(self._model(inputs), labels)))
        return found


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
