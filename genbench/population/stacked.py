"""Many networks of one architecture as one: their states stacked, one forward pass for all.

`torch.func.stack_module_state` stacks the states; the forward pass follows the traced graph of the first
network, each layer replaced by the one of `genbench.population.layers` that serves all networks at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import stack_module_state

from genbench.errors import UserError
from genbench.population.layers import batch_norm, convolve, dense, max_pool
from genbench.subject.inputs import Inputs

__all__ = ["StackedNetworks"]

_EVALUATED = 256
"""Images in one forward pass without gradients: few enough for the processor's caches."""


class StackedNetworks:
    """n networks of one architecture, on one device; row i of `theta` holds all parameters of network i."""

    def __init__(self, networks: Sequence[nn.Module], device: torch.device | None = None) -> None:
        parameters, buffers = stack_module_state(list(networks))
        self._shapes = {name: value.shape[1:] for name, value in parameters.items()}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        theta = torch.cat([value.detach().flatten(1) for value in parameters.values()], dim=1)
        self.theta = theta if device is None else theta.to(device)
        self.buffers: dict[str, Tensor] = {
            name: value.clone().to(self.theta.device) for name, value in buffers.items()
        }
        self._graph = list(fx.symbolic_trace(networks[0]).graph.nodes)
        self._modules = dict(networks[0].named_modules())

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def parameters_each(self) -> int:
        """Trainable parameters of one network."""
        return sum(self._sizes)

    def views(self, theta: Tensor) -> dict[str, Tensor]:
        """Columns of `theta` as named tensors, (n, …) each."""
        parts = theta.split(self._sizes, dim=1)
        return {
            name: part.view(len(theta), *shape)
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def state(self, place: int) -> dict[str, Tensor]:
        """State dict of one network, as the module itself would give it; copies on the CPU."""
        everything = {**self.views(self.theta), **self.buffers}
        return {name: value[place].clone().cpu() for name, value in everything.items()}

    def keep(self, places: Tensor) -> None:
        """Forget all networks but those at `places`."""
        self.theta = self.theta[places]
        self.buffers = {name: value[places] for name, value in self.buffers.items()}

    def logits(
        self,
        theta: Tensor,
        images: Tensor,
        *,
        training: bool,
        generators: Sequence[torch.Generator] = (),
    ) -> Tensor:
        """Logits (n, classes, batch) of images (n, channels, height, width, batch), or (1, …) shared by all.

        In training, batch norms use and record the batch's statistics, and dropout of network i draws from
        `generators[i]`.
        """
        parameters = self.views(theta)
        values: dict[fx.Node, Any] = {}
        for node in self._graph:
            given = [values[a] if isinstance(a, fx.Node) else a for a in node.args]
            if node.op == "placeholder":
                values[node] = images
            elif node.op == "call_module":
                layer = self._modules[str(node.target)]
                values[node] = self._call(layer, str(node.target), given[0], parameters, training, generators)
            elif node.op == "output":
                break
            else:
                values[node] = _function(node)(*given)
        result: Tensor = given[0]
        return result

    def _call(
        self,
        layer: nn.Module,
        name: str,
        given: Tensor,
        parameters: Mapping[str, Tensor],
        training: bool,
        generators: Sequence[torch.Generator],
    ) -> Tensor:
        weight, bias = parameters.get(f"{name}.weight"), parameters.get(f"{name}.bias")
        if isinstance(layer, nn.Conv2d) and layer.groups == 1 and weight is not None:
            return convolve(given, weight, bias, layer.stride[0], int(layer.padding[0]))
        if isinstance(layer, nn.Linear) and weight is not None:
            return dense(given, weight, bias)
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)) and weight is not None and bias is not None:
            if training:
                self.buffers[f"{name}.num_batches_tracked"] += 1
            return batch_norm(
                given,
                weight,
                bias,
                self.buffers[f"{name}.running_mean"],
                self.buffers[f"{name}.running_var"],
                training=training,
                momentum=0.1 if layer.momentum is None else layer.momentum,
                eps=layer.eps,
            )
        if isinstance(layer, nn.ReLU):
            # In place: nothing that comes before a ReLU here needs its own output again.
            return given.relu_()
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            return given.flatten(2, 3).mean(dim=2)[:, :, None, None]
        if isinstance(layer, nn.MaxPool2d) and (layer.kernel_size, layer.stride, layer.padding) == (2, 2, 0):
            return max_pool(given)
        if isinstance(layer, nn.Dropout):
            return _dropout(given, layer.p, generators) if training and layer.p else given
        if isinstance(layer, nn.Identity):
            return given
        raise UserError(f"layer {name} is a {type(layer).__name__}, which cannot be stacked")

    @torch.no_grad()
    def evaluate(self, images: Tensor | Inputs, prepare: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Logits (n, images, classes) in eval mode; every network sees the same images (m, c, h, w).

        The images may lie elsewhere: they are moved, and prepared where that is asked for, batch by batch.
        """
        parts = []
        for batch in images.split(_EVALUATED):
            moved = batch.to(self.theta.device)
            prepared = moved if prepare is None else prepare(moved)
            shared = prepared.permute(1, 2, 3, 0).contiguous()[None]
            parts.append(self.logits(self.theta, shared, training=False))
        return torch.cat(parts, dim=2).transpose(1, 2)


def _function(node: fx.Node) -> Callable[..., Tensor]:
    if node.op == "call_function" and node.target is operator.add:
        return operator.add
    if node.op == "call_method" and node.target == "flatten":
        # (n, c, h, w, batch) -> (n, c·h·w, batch): the batch, first elsewhere, is last here.
        return lambda given, start: given.flatten(1, -2)
    raise UserError(f"a network that calls {node.target} cannot be stacked")


def _dropout(given: Tensor, share: float, generators: Sequence[torch.Generator]) -> Tensor:
    shape = given.shape[1:]
    # Drawn on the CPU: what is dropped is the same on every device.
    draws = (torch.rand(shape, generator=g, dtype=given.dtype, device="cpu") for g in generators)
    keep = torch.stack([(draw >= share).to(given.device) for draw in draws])
    return given * keep / (1 - share)
