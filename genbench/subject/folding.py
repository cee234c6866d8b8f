"""Folds batch norm in inference mode into the layer before it, by tracing the module graph.

With s = scale / sqrt(running variance + eps), a convolution or linear layer (W, b) followed by batch norm
computes the same function as the layer (s·W, shift + s·(b − running mean)) alone (SPEC.md section 4).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from genbench.errors import NotApplicable

__all__ = ["FoldedNetwork", "fold_batch_norm"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LAYERS = (*_CONVOLUTIONS, nn.Linear)


@dataclass(frozen=True)
class FoldedNetwork:
    """The same function as the original network in eval mode, with batch norms folded away."""

    module: fx.GraphModule
    layer_names: tuple[str, ...]
    """Convolution and linear layers, in the order in which they are called."""

    def layers(self) -> list[nn.Module]:
        """The layers behind `layer_names`."""
        return [self.module.get_submodule(name) for name in self.layer_names]

    def weights(self) -> list[Tensor]:
        """W_1 ... W_d, the layers' weight tensors."""
        return [layer.weight.detach() for layer in self.layers() if isinstance(layer.weight, Tensor)]

    def copy(self) -> FoldedNetwork:
        """A copy that shares no tensor with this one."""
        return FoldedNetwork(copy.deepcopy(self.module), self.layer_names)


def fold_batch_norm(model: nn.Module) -> FoldedNetwork:
    """Fold every batch norm that follows a convolution or linear layer of its own; `model` is not changed."""
    model = copy.deepcopy(model).eval()
    if isinstance(model, _LAYERS):
        model = nn.Sequential(model)  # the tracer looks inside its root, and would see no layer
    try:
        traced = fx.symbolic_trace(model)
    except Exception as problem:  # tracing runs arbitrary forward code on proxies
        raise NotApplicable(
            f"batch norms cannot be folded: the forward pass of {type(model).__name__} cannot be traced "
            f"({type(problem).__name__}: {problem})"
        ) from problem
    modules = dict(traced.named_modules())
    calls = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    _require_known_weights(traced)
    for node in list(traced.graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(norm, _BATCH_NORMS):
            continue
        before = node.args[0]
        if not (isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1):
            continue
        name = str(before.target)
        layer = modules[name]
        if not isinstance(layer, _LAYERS) or calls.count(name) > 1:
            continue
        fused = _fuse(layer, norm, str(node.target))
        parent, _, leaf = name.rpartition(".")
        setattr(traced.get_submodule(parent), leaf, fused)
        modules[name] = fused
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    ordered = dict.fromkeys(name for name in calls if isinstance(modules[name], _LAYERS))
    return FoldedNetwork(traced.eval(), tuple(ordered))


def _require_known_weights(traced: fx.GraphModule) -> None:
    """Refuse networks with weights outside convolution and linear layers, rather than skip them silently."""
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            value = getattr(traced.get_submodule(owner), name)
            if isinstance(value, nn.Parameter) and value.ndim > 1:
                raise NotApplicable(
                    f"the weights {node.target} are used outside any layer that genbench knows"
                )
        elif node.op == "call_module":
            part = traced.get_submodule(str(node.target))
            if not isinstance(part, _LAYERS) and any(p.ndim > 1 for p in part.parameters()):
                raise NotApplicable(
                    f"{node.target} is a {type(part).__name__}; genbench knows weights of convolution and "
                    "linear layers only"
                )


def _fuse(layer: nn.Module, norm: BatchNorm, name: str) -> nn.Module:
    if norm.running_var is None:
        raise NotApplicable(f"batch norm {name} keeps no running statistics, so it cannot be folded")
    if isinstance(layer, nn.Linear):
        return fuse_linear_bn_eval(layer, norm)
    assert isinstance(layer, _CONVOLUTIONS)
    return fuse_conv_bn_eval(layer, norm)
