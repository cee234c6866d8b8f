"""Gradients of the loss of single training examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from genbench.subject.fitting import fits, fitting
from genbench.subject.sampling import double_backward, examples

if TYPE_CHECKING:
    from genbench.subject.subject import TrainedNetwork

__all__ = ["example_gradients"]

_AT_ONCE = 32


def example_gradients(network: TrainedNetwork, size: int) -> Iterator[list[Tensor]]:
    """For some examples at a time, each parameter's gradients (examples, *shape), in the fixed order.

    Of all examples at once by one vectorised pass; one by one where the network cannot be vectorised.
    """
    theta = {name: p.detach() for name, p in network.model.named_parameters() if p.requires_grad}
    inputs, labels = examples(network, size)
    at_once = _most(network, sum(p.numel() * p.element_size() for p in theta.values()))

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(network.model, parameters, (x[None],)), y[None])

    single: Callable[..., dict[str, Tensor]] = grad(loss)
    together: Callable[..., dict[str, Tensor]] = vmap(single, in_dims=(None, 0, 0))
    vectorised = True
    with double_backward():
        for x, y in zip(inputs.split(at_once), labels.split(at_once), strict=True):
            if vectorised:
                try:
                    found = together(theta, x, y)
                    yield [found[name] for name in theta]
                    continue
                except RuntimeError:
                    vectorised = False  # operations that vmap does not know, or that look at values
            each = [single(theta, one, label) for one, label in zip(x, y, strict=True)]
            yield [torch.stack([one[name] for one in each]) for name in theta]


def _most(network: TrainedNetwork, gradient_bytes: int) -> int:
    """Examples whose gradients fit, beside what their passes keep."""
    size = fitting(network, _AT_ONCE, copies=2)
    while size > 1 and not fits(2 * size * gradient_bytes):
        size = (size + 1) // 2
    return size
