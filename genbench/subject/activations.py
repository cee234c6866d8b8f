"""Activations: what a layer gives on training examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting
from genbench.subject.sampling import examples

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["activations"]


def activations(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, layer: str, size: int
) -> Part:
    """Outputs of the module called `layer` on the first `size` training examples of the fixed order."""
    modules = dict(network.model.named_modules())
    if layer not in modules:
        raise NotApplicable(f"the network has no layer {layer!r}")
    seen: list[Tensor] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise NotApplicable(f"the layer {layer!r} gives {type(output).__name__}, not a tensor")
        seen.append(output.detach().clone())

    inputs, _ = examples(network, size)
    batches: list[Tensor] = []
    handle = modules[layer].register_forward_hook(keep)
    try:
        with torch.no_grad():
            for batch in inputs.split(fitting(network, 256)):
                seen.clear()
                network.model(batch)
                if not seen:
                    raise NotApplicable(f"the layer {layer!r} is not used on the training examples")
                found = seen[-1]  # of a layer that is used several times, the last
                if found.ndim < 1 or len(found) != len(batch):
                    raise NotApplicable(f"the layer {layer!r} does not give one row per example")
                batches.append(found)
    finally:
        handle.remove()
    return {"activations": torch.cat(batches)}
