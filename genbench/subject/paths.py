"""The sum over all input-output paths of the products of squared weights (001 Eq. 27), as a logarithm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.subject.folding import FoldedNetwork, trace
from genbench.subject.squared import Scaled, SquaredNetwork, last_axes, unknown

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["log_path_sum", "log_path_sum_unnormalised", "log_paths"]


def log_path_sum(folded: FoldedNetwork, input_shape: tuple[int, ...], examples: Tensor) -> float:
    """log of the summed logits of the squared network on ones; -inf if every path is broken by a zero.

    `examples`: training inputs. A layer norm acts as its average, with the root mean square of the standard
    deviations it divides by on them, as batch norm acts with its running statistics.
    """
    spreads = _layer_norm_spreads(folded, examples)
    return _log_sum(SquaredNetwork(folded.copy().module.double(), spreads), input_shape)


def log_path_sum_unnormalised(model: nn.Module, input_shape: tuple[int, ...]) -> float:
    """The same of the network as it is, not folded, with every norm layer taken for the identity."""
    return _log_sum(SquaredNetwork(trace(model).double(), None), input_shape)


def _log_sum(squared: SquaredNetwork, input_shape: tuple[int, ...]) -> float:
    with torch.no_grad():
        out = squared.run(Scaled(torch.ones(1, *input_shape, dtype=torch.float64)))
    if not isinstance(out, Scaled) or out.kind != "value":
        raise unknown("a network whose output is no sum of activations")
    total = float(out.tensor.sum())
    if math.isnan(total) or math.isinf(total):
        raise NotApplicable("a weight of the network is beyond the range of double precision when squared")
    return math.log(total) + out.log_scale if total > 0 else -math.inf


def _layer_norm_spreads(folded: FoldedNetwork, examples: Tensor) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    handles = [
        part.register_forward_pre_hook(
            lambda norm, inputs, name=name: seen.setdefault(name, []).append(
                float(inputs[0].double().var(last_axes(norm), unbiased=False).mean()) + norm.eps
            )
        )
        for name, part in folded.module.named_modules()
        if isinstance(part, nn.LayerNorm)
    ]
    if handles:
        with torch.no_grad():
            folded.module(examples)
    for handle in handles:
        handle.remove()
    return {name: math.sqrt(sum(values) / len(values)) for name, values in seen.items()}


def log_paths(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, normalised: bool = True
) -> Part:
    """log of the sum over paths, as a shared part."""
    shape = tuple(network.inputs.shape[1:])
    if not normalised:
        value = log_path_sum_unnormalised(network.model, shape)
        return {"log_sum": torch.tensor(value, dtype=torch.float64)}
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    value = log_path_sum(network.folded, shape, network.inputs[:_EXAMPLES])
    return {"log_sum": torch.tensor(value, dtype=torch.float64)}


_EXAMPLES = 256
"""Training inputs on which layer norms are averaged."""
