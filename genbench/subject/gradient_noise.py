"""The noise scale of gradients (002 Eq. 36, 37), from that of the mean loss and those of single examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.gradients import trainable
from genbench.subject.precision import wide
from genbench.subject.sampling import double_backward, drawn_by_size

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["gradient_noise"]

_BATCH = 32
"""Size of the batches whose variance is asked for."""
_EPS = 1e-3
"""eps of 002 Eq. 37, which the paper leaves open, as a share of the mean over coordinates of g²."""
_MEAN = 4096
"""Examples of the mean gradient. That of a part of the training set has noise, not small beside it on a
network that fits its data: so all of them, but for large training sets."""
_SQUARED = 256
"""Examples of the squared gradients."""
_FLOOR = 0.1
"""Least size of an example that is drawn by size, as a share of the mean."""
_CHUNK_FLOATS = 2**25
"""Numbers of per-example gradients held at once."""


def gradient_noise(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Mean over coordinates of Var_i, of Var_i / (g_i² + eps), and of g_i², over all batches of 32 examples.

    g = gradient of the mean loss. Var_i = (1/32 − 1/m)·m/(m − 1)·(mean_n g_ni² − g_i²), the variance of the
    mean of 32 of m, drawn without replacement. With w_i = 1 / (g_i² + eps), or 1, that takes one number of
    each example, sum_i w_i g_ni²; of the examples 256 are drawn by |p − y|², which they are nearly in
    proportion to.

    variance; noise_scale (1,), empty where g = 0; mean_square; chances (n,) of the examples drawn, and shares
    (n, 2): what each adds to the variance and to the noise scale.
    """
    m = len(network.labels)
    if m < 2:
        raise NotApplicable("it needs two training examples at least, to tell how far they differ")
    p = parts.get("logits")["logits"].cpu().double().softmax(1)
    far = (p - torch.nn.functional.one_hot(network.labels.cpu(), p.shape[1])).square().sum(1)
    square = _mean_gradient(network, far, generator).square_()
    eps = _EPS * square.mean()
    weights = square.new_ones(2, len(square))
    torch.reciprocal(square + eps, out=weights[1]) if eps > 0 else weights[1].zero_()
    rows, chances = drawn_by_size(_sizes(far), _SQUARED, generator)
    factor = (1 / max(1, min(_BATCH, m // 2)) - 1 / m) * m / (m - 1) / len(square)
    shares = _weighted_squares(network, rows, weights).cpu() * (factor / m) / chances[:, None]
    variance, scale = (shares.sum(0) - factor * (weights @ square).cpu()).clamp(min=0)
    return {
        "variance": variance,
        "noise_scale": scale[None] if eps > 0 else scale.new_zeros(0),
        "mean_square": square.mean().cpu(),
        "shares": shares,
        "chances": chances,
    }


def _sizes(far: Tensor) -> Tensor:
    return _FLOOR + far / far.mean().clamp(min=1e-300)


def _mean_gradient(network: TrainedNetwork, far: Tensor, generator: torch.Generator) -> Tensor:
    theta, m = trainable(network.model), len(network.labels)
    rows, chances = drawn_by_size(_sizes(far.sqrt()), _MEAN, generator)
    total = torch.zeros(sum(w.numel() for w in theta), dtype=wide(network.device), device=network.device)
    batch = fitting(network, 128, copies=2)
    for some, chance in zip(rows.split(batch), chances.split(batch), strict=True):
        losses = cross_entropy(network.model(network.inputs[some]), network.labels[some], reduction="none")
        loss = (losses / chance.to(losses.dtype).to(losses.device)).sum()
        found = torch.autograd.grad(loss, theta, allow_unused=True, materialize_grads=True)
        total += torch.cat([g.flatten() for g in found])
    return total / m


def _weighted_squares(network: TrainedNetwork, rows: Tensor, weights: Tensor) -> Tensor:
    """(n, 2), sum_i w_i g_ni² of single examples, with either w."""
    theta = {name: w.detach() for name, w in network.model.named_parameters() if w.requires_grad}

    def loss(w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(network.model, w, (x[None],)), y[None])

    chunk = fitting(network, max(1, min(128, _CHUNK_FLOATS // weights.shape[1])), copies=2)
    found = []
    with torch.no_grad(), double_backward():
        for some in rows.split(chunk):
            each = vmap(grad(loss), (None, 0, 0))(theta, network.inputs[some], network.labels[some])
            squares, start = weights.new_zeros(len(some), 2), 0
            for values in each.values():
                flat = values.flatten(1)
                squares += flat.square().to(weights.dtype) @ weights[:, start : start + flat.shape[1]].T
                start += flat.shape[1]
            found.append(squares)
    return torch.cat(found)
