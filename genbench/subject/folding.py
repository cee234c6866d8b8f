"""Folds batch norm in inference mode into the layer before it, by tracing the module graph.

With s = scale / sqrt(running variance + eps), a convolution or linear layer (W, b) followed by batch norm
computes the same function as the layer (s·W, shift + s·(b − running mean)) alone (SPEC.md section 4).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from genbench.errors import NotApplicable
from genbench.subject.attention import with_plain_parts
from genbench.subject.module_copies import can_be_copied, tensors_of, with_same_tensors, with_state

__all__ = ["FoldedNetwork", "fold_batch_norm", "knows_how_to_fold", "trace"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LAYERS = (*_CONVOLUTIONS, nn.Linear)

_AS_PLAIN = {"Conv2dStaticSamePadding", "Conv2dDynamicSamePadding", "Conv2dSame", "Linear"}
"""Layers of efficientnet_pytorch and timm that pad or cast their input and are plain otherwise."""

_TOLERANCE = 1e-3
"""Largest change of the outputs, relative to their size, that rounding can explain."""


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
        """A copy that shares nothing with this one."""
        return FoldedNetwork(copy.deepcopy(self.module), self.layer_names)

    def with_own_tensors(self) -> FoldedNetwork:
        """A copy that shares no tensor with this one but the graph, which is to be left as it is."""
        if not can_be_copied(self.module):
            return self.copy()
        state = {name: tensor.detach().clone() for name, tensor in tensors_of(self.module).items()}
        return FoldedNetwork(with_state(self.module, state), self.layer_names)


def fold_batch_norm(
    model: nn.Module, example: Tensor | None = None, architecture: Hashable | None = None
) -> FoldedNetwork:
    """Fold every batch norm that follows a convolution or linear layer of its own; `model` is not changed.

    With an `example` batch of inputs, the folded network's outputs on it are compared with the model's: a
    module that looks like a layer and is none is refused, not folded wrongly.

    Parameters
    ----------
    architecture : networks for which this is the same differ in the values of their parameters and buffers
        alone, and none of these decides what their forward pass does: they are traced once for all.
    """
    pattern = _PATTERNS.get(architecture) if architecture is not None else None
    if pattern is not None:
        folded = pattern.applied(model)
    else:
        folded, fused, products = _folded(model)
        if architecture is not None:
            _remember(architecture, _pattern(model, folded, fused, products))
    if example is not None:
        _require_same_outputs(_in_eval_mode(model), folded, example)
    return folded


def knows_how_to_fold(architecture: Hashable) -> bool:
    """Whether a network of this architecture was folded in this process."""
    return architecture in _PATTERNS


def _in_eval_mode(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).eval() if any(part.training for part in model.modules()) else model


def _folded(model: nn.Module) -> tuple[FoldedNetwork, dict[str, str], dict[str, str]]:
    """The folded network, layers to the batch norms in them, and linear layers to the matrices they are."""
    traced, products = _trace(model)
    fusions: dict[str, str] = {}
    modules = dict(traced.named_modules())
    calls = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
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
        fusions[name] = str(node.target)
        parent, _, leaf = name.rpartition(".")
        setattr(traced.get_submodule(parent), leaf, fused)
        modules[name] = fused
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    traced.recompile()
    ordered = dict.fromkeys(name for name in calls if isinstance(modules[name], _LAYERS))
    return FoldedNetwork(traced.eval(), tuple(ordered)), fusions, products


@dataclass(frozen=True)
class _Pattern:
    """How networks of one architecture are folded."""

    folded: fx.GraphModule
    """One of them, without the values of its tensors."""
    layer_names: tuple[str, ...]
    fusions: dict[str, str]
    products: dict[str, str]
    rewritten: bool
    """Whether it has parts that had to be put in other words."""

    def applied(self, model: nn.Module) -> FoldedNetwork:
        """`model` folded."""
        plain = _plain_copy(model) if self.rewritten else model
        before = tensors_of(plain)
        state: dict[str, Tensor] = {}
        with torch.no_grad():
            for name, norm in self.fusions.items():
                weights = _fused_weights(plain.get_submodule(name), plain.get_submodule(norm), norm)
                state |= zip((f"{name}.weight", f"{name}.bias"), weights, strict=True)
            for name, matrix in self.products.items():
                state[f"{name}.weight"] = before[matrix].T.contiguous()
            for name in tensors_of(self.folded):
                if name not in state:
                    state[name] = before[name].detach().clone()
        return FoldedNetwork(with_state(self.folded, state), self.layer_names)


_PATTERNS: dict[Hashable, _Pattern | None] = {}
"""By architecture; None where there is no other way than to trace each."""
_MOST_PATTERNS = 64


def _remember(architecture: Hashable, pattern: _Pattern | None) -> None:
    while len(_PATTERNS) >= _MOST_PATTERNS:
        del _PATTERNS[next(iter(_PATTERNS))]
    _PATTERNS[architecture] = pattern


def _pattern(
    model: nn.Module, folded: FoldedNetwork, fusions: dict[str, str], products: dict[str, str]
) -> _Pattern | None:
    """What was done to `model`, where the same can be done to others without a look at them."""
    if not (can_be_copied(model) and can_be_copied(folded.module)):
        return None
    made = {f"{name}.{kind}" for name in (*fusions, *products) for kind in ("weight", "bias")}
    plain = _plain_copy(model)
    given = tensors_of(plain)
    found = tensors_of(folded.module)
    # Another tensor was computed while tracing, from values that other networks do not have.
    if any(name not in given and name not in made for name in found):
        return None
    values = {name: tensor.detach().to("meta") for name, tensor in found.items()}
    empty = with_state(folded.module, values)
    rewritten = [type(part) for part in plain.modules()] != [type(part) for part in model.modules()]
    return _Pattern(empty, folded.layer_names, fusions, products, rewritten)


def _plain_copy(model: nn.Module) -> nn.Module:
    """The network that is traced, with the tensors of `model` where they are the same."""
    return _one_level_deep(with_plain_parts(with_same_tensors(model)))


def trace(model: nn.Module) -> fx.GraphModule:
    """A copy of the network as a graph of layers that genbench knows, batch norms as they are."""
    return _trace(model)[0]


def _trace(model: nn.Module) -> tuple[fx.GraphModule, dict[str, str]]:
    """The same, and linear layers to the matrices that they were made of."""
    traced = _traced(with_plain_parts(copy.deepcopy(model).eval()))
    products = _linear_products(traced)
    _require_known_weights(traced)
    return traced, products


def _one_level_deep(model: nn.Module) -> nn.Module:
    """The tracer looks inside its root, and would see no layer."""
    return nn.Sequential(model) if isinstance(model, _LAYERS) else model


class _Tracer(fx.Tracer):
    """Looks into everything but torch's own modules and the layers that folding works on."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, (*_LAYERS, *_BATCH_NORMS)):
            plain = any(type(m).forward is base.forward for base in (*_LAYERS, *_BATCH_NORMS))
            return plain or type(m).__name__ in _AS_PLAIN
        return isinstance(m, nn.LayerNorm) or super().is_leaf_module(m, module_qualified_name)


def _traced(model: nn.Module) -> fx.GraphModule:
    model = _one_level_deep(model)
    try:
        graph = _Tracer().trace(model)
        _set_defaults(graph)
        return fx.GraphModule(model, graph)
    except NotApplicable:
        raise
    except Exception as problem:  # tracing runs arbitrary forward code on proxies
        raise NotApplicable(
            f"batch norms cannot be folded: the forward pass of {type(model).__name__} cannot be traced "
            f"({type(problem).__name__}: {problem})"
        ) from problem


def _set_defaults(graph: fx.Graph) -> None:
    """Give every argument but the first its default value: the network is called with images alone."""
    for node in [node for node in graph.nodes if node.op == "placeholder"][1:]:
        if not node.args:
            continue
        for user in list(node.users):

            def filled(source: fx.Node, node: fx.Node = node) -> Any:
                return node.args[0] if source is node else source

            user.args = fx.map_arg(user.args, filled)
            user.kwargs = fx.map_arg(user.kwargs, filled)
        graph.erase_node(node)


def _linear_products(traced: fx.GraphModule) -> dict[str, str]:
    """Make a linear layer of every `x @ P` with a matrix of parameters P, as in CLIP's ViT; layer to P."""
    found = {}
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target not in (operator.matmul, torch.matmul):
            continue
        left, right = node.args
        if not (isinstance(right, fx.Node) and right.op == "get_attr" and len(right.users) == 1):
            continue
        matrix = _attribute(traced, right)
        if not isinstance(matrix, nn.Parameter) or matrix.ndim != 2:
            continue
        rows, columns = matrix.shape
        layer = nn.Linear(rows, columns, bias=False, device="meta")
        layer.weight = nn.Parameter(matrix.detach().T.contiguous())
        name = f"{str(right.target).replace('.', '_')}_product"
        traced.add_submodule(name, layer.eval())
        found[name] = str(right.target)
        with traced.graph.inserting_before(node):
            call = traced.graph.call_module(name, (left,))
        node.replace_all_uses_with(call)
        traced.graph.erase_node(node)
        traced.graph.erase_node(right)
    if found:
        traced.recompile()
    return found


def _attribute(traced: fx.GraphModule, node: fx.Node) -> object:
    owner, _, name = str(node.target).rpartition(".")
    return getattr(traced.get_submodule(owner), name)


_RESHAPING = {"to", "view", "expand", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "type_as"}


def _only_added(node: fx.Node) -> bool:
    """Whether a tensor of parameters is only ever added to activations or put beside them, as a bias is."""
    for user in node.users:
        if user.op == "call_method" and (user.target in _RESHAPING or user.target in ("add", "add_")):
            if user.target in _RESHAPING and not _only_added(user):
                return False
        elif user.op == "call_function" and user.target is operator.getitem:
            if not _only_added(user):
                return False
        elif user.op != "call_function" or user.target not in (
            operator.add, operator.iadd, torch.add, torch.cat, getattr,
        ):  # fmt: skip
            return False
    return True


def _require_known_weights(traced: fx.GraphModule) -> None:
    """Refuse networks with weights outside convolution and linear layers, rather than skip them silently."""
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            value = _attribute(traced, node)
            if isinstance(value, nn.Parameter) and value.ndim > 1 and not _only_added(node):
                raise NotApplicable(
                    f"the weights {node.target} are used outside any layer that genbench knows"
                )
        elif node.op == "call_module":
            part = traced.get_submodule(str(node.target))
            known = isinstance(part, (*_LAYERS, nn.LayerNorm))
            if not known and any(p.ndim > 1 for p in part.parameters()):
                raise NotApplicable(
                    f"{node.target} is a {type(part).__name__}; genbench knows weights of convolution and "
                    "linear layers only"
                )
        elif node.op == "call_function" and node.target is nn.functional.batch_norm:
            raise NotApplicable("a batch norm is written as a function call, which is not folded here")


def _fuse(layer: nn.Module, norm: BatchNorm, name: str) -> nn.Module:
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = _fused_weights(layer, norm, name)
    return fused


def _fused_weights(layer: nn.Module, norm: nn.Module, name: str) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights and biases of the layer with the batch norm `name` in it."""
    assert isinstance(norm, _BATCH_NORMS)
    mean, variance, scale, shift = norm.running_mean, norm.running_var, norm.weight, norm.bias
    if mean is None or variance is None:
        raise NotApplicable(f"batch norm {name} keeps no running statistics, so it cannot be folded")
    if not norm.affine:
        scale, shift = (nn.Parameter(one(variance), False) for one in (torch.ones_like, torch.zeros_like))
    if isinstance(layer, nn.Linear):
        assert norm.num_features in (layer.out_features, 1)
        return fuse_linear_bn_weights(layer.weight, layer.bias, mean, variance, norm.eps, scale, shift)
    assert isinstance(layer, _CONVOLUTIONS)
    return fuse_conv_bn_weights(layer.weight, layer.bias, mean, variance, norm.eps, scale, shift)


def _require_same_outputs(model: nn.Module, folded: FoldedNetwork, example: Tensor) -> None:
    try:
        with torch.no_grad():
            expected, found = model(example), folded.module(example)
    except Exception as problem:  # the network's own code
        raise NotApplicable(
            f"the network fails on its training inputs ({type(problem).__name__}: {problem})"
        ) from problem
    # NaN and inf of a network with extreme weights are the measures' business.
    if not (isinstance(expected, Tensor) and bool(expected.isfinite().all())):
        return
    change = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    if not change <= _TOLERANCE:
        raise NotApplicable(
            f"batch norms cannot be folded: that would change the outputs by {change:.1e} of their size"
        )
