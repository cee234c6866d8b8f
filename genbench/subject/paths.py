"""The sum over all input-output paths of the products of squared weights (001 Eq. 27), as a logarithm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx, nn

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.folding import FoldedNetwork, trace
from genbench.subject.precision import wide
from genbench.subject.squared import Scaled, SquaredNetwork, last_axes, unknown

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["log_path_sum", "log_path_sum_unnormalised", "log_paths"]


def log_path_sum(
    folded: FoldedNetwork, input_shape: tuple[int, ...], examples: Tensor | Iterable[Tensor]
) -> float:
    """log of the summed logits of the squared network on ones; -inf if every path is broken by a zero.

    `examples`: training inputs, or batches of them. A layer norm acts as its average, with the root mean
    square of the standard deviations it divides by on them, as batch norm acts with its running statistics.
    """
    spreads = _layer_norm_spreads(folded, (examples,) if isinstance(examples, Tensor) else examples)
    return _log_sum(folded.with_own_tensors().module, spreads, input_shape)


def log_path_sum_unnormalised(model: nn.Module, input_shape: tuple[int, ...]) -> float:
    """The same of the network as it is, not folded, with every norm layer taken for the identity."""
    return _log_sum(trace(model), None, input_shape)


def _log_sum(module: fx.GraphModule, spreads: dict[str, float] | None, input_shape: tuple[int, ...]) -> float:
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    if wide(device) != torch.float64:
        device = torch.device("cpu")
    squared = SquaredNetwork(module.to(device, torch.float64), spreads)
    with torch.no_grad():
        out = squared.run(Scaled(torch.ones(1, *input_shape, dtype=torch.float64, device=device)))
    if not isinstance(out, Scaled) or out.kind != "value":
        raise unknown("a network whose output is no sum of activations")
    total = float(out.tensor.sum())
    if math.isnan(total) or math.isinf(total):
        raise NotApplicable("a weight of the network is beyond the range of double precision when squared")
    return math.log(total) + out.log_scale if total > 0 else -math.inf


def _layer_norm_spreads(folded: FoldedNetwork, batches: Iterable[Tensor]) -> dict[str, float]:
    squares: dict[str, list[tuple[float, int]]] = {}

    def see(norm: nn.LayerNorm, inputs: tuple[Tensor], name: str) -> None:
        values = inputs[0].to(wide(inputs[0].device))
        square = float(values.var(last_axes(norm), unbiased=False).mean()) + norm.eps
        squares.setdefault(name, []).append((square, len(values)))

    handles = [
        part.register_forward_pre_hook(partial(see, name=name))
        for name, part in folded.module.named_modules()
        if isinstance(part, nn.LayerNorm)
    ]
    if handles:
        with torch.no_grad():
            for batch in batches:
                folded.module(batch)
    for handle in handles:
        handle.remove()
    return {name: math.sqrt(_mean(found)) for name, found in squares.items()}


def _mean(weighted: list[tuple[float, int]]) -> float:
    """Mean of values with their weights, in units of the largest: of equal weights, the plain mean."""
    largest = max(weight for _, weight in weighted)
    shares = [weight / largest for _, weight in weighted]
    return sum(value * share for (value, _), share in zip(weighted, shares, strict=True)) / sum(shares)


def log_paths(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, normalised: bool = True
) -> Part:
    """log of the sum over paths, as a shared part."""
    shape = tuple(network.inputs.shape[1:])
    if not normalised:
        value = log_path_sum_unnormalised(network.model, shape)
    elif isinstance(network.folded, NotApplicable):
        raise network.folded
    else:
        value = log_path_sum(network.folded, shape, _first_examples(network))
    return {"log_sum": torch.tensor(value, dtype=torch.float64, device="cpu")}


def _first_examples(network: TrainedNetwork) -> Iterator[Tensor]:
    """Batches; how many fit is found out by passes of its own, so not before somebody asks for them."""
    some = network.inputs.chosen(torch.arange(min(_EXAMPLES, len(network.inputs)), device="cpu"))
    yield from some.split(fitting(network, _EXAMPLES))


_EXAMPLES = 256
"""Training inputs on which layer norms are averaged."""
