"""A network with squared weights, run on non-negative values that are kept with a scale of their own.

ReLU is the identity on non-negative values, and so are the activations that act as ReLU here. Gates are 1,
attention is the mean over the tokens. Each value is a tensor times exp(log scale): nothing overflows however
deep the network is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from genbench.errors import NotApplicable

__all__ = ["Scaled", "SquaredNetwork", "last_axes", "unknown"]


class Scaled:
    """The values tensor · exp(log_scale), and what they are.

    `kind`: "value", activations; "parameter"; "gate", the output of a gate, all ones; "scores", a product of
    activations, which only a softmax may take; "attention", its output.
    """

    def __init__(self, tensor: Tensor, log_scale: float = 0.0, kind: str = "value") -> None:
        largest = float(tensor.max()) if tensor.numel() else 0.0
        if largest > 0 and math.isfinite(largest):
            tensor, log_scale = tensor / largest, log_scale + math.log(largest)
        self.tensor, self.log_scale, self.kind = tensor, log_scale, kind

    def mapped(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A homogeneous function of the values."""
        out = function(self.tensor, *args, **kwargs)
        if isinstance(out, Tensor):
            return Scaled(out, self.log_scale, self.kind)
        if isinstance(out, (tuple, list)) and out and all(isinstance(part, Tensor) for part in out):
            return tuple(Scaled(part, self.log_scale, self.kind) for part in out)
        return out  # a size, a number of dimensions

    def at(self, log_scale: float) -> Tensor:
        """The tensor that stands for the same values at another scale."""
        return self.tensor * math.exp(self.log_scale - log_scale)


def unknown(what: str) -> NotApplicable:
    """The refusal of a network that is no sum over paths."""
    return NotApplicable(
        f"the path norm of {what} is not defined here: it is not a sum of non-negative paths"
    )


_SAME = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.SiLU, nn.GELU, nn.Mish, nn.ELU, nn.Hardswish, nn.Softplus,
    nn.Identity, nn.Dropout, nn.Dropout2d,
)  # fmt: skip
_GATES = (nn.Sigmoid, nn.Hardsigmoid)
_POOLS = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.MaxPool2d,
    nn.AdaptiveMaxPool2d, nn.Flatten, nn.ZeroPad2d, nn.PixelShuffle, nn.Unflatten,
)  # fmt: skip
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_LAST_AXIS_NORMS = {"LayerNorm", "LayerNormFp32"}
"""Torch's own and the namesakes in open_clip and timm, which normalise the last axis as it does."""
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_NORMS = (*_BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.RMSNorm)
_NORM_FUNCTIONS = {F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm}

_SAME_FUNCTIONS = {
    F.relu,
    F.relu6,
    torch.relu,
    F.silu,
    F.gelu,
    F.dropout,
    F.hardswish,
    F.leaky_relu,
    F.prelu,
    F.mish,
}
_GATE_FUNCTIONS = {torch.sigmoid, F.sigmoid, F.hardsigmoid}
_HOMOGENEOUS_FUNCTIONS = {
    F.adaptive_avg_pool2d, F.avg_pool2d, F.max_pool2d, F.adaptive_max_pool2d, F.pad, torch.flatten,
    torch.mean, torch.sum, torch.reshape, torch.permute, torch.transpose, torch.squeeze, torch.unsqueeze,
    operator.getitem, torch.chunk, torch.split, torch.unbind, getattr,
}  # fmt: skip
_SAME_METHODS = {"relu", "relu_", "contiguous", "clone", "to", "type_as", "float"}
_HOMOGENEOUS_METHODS = {
    "flatten", "mean", "sum", "view", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "expand",
    "unflatten", "chunk", "split", "unbind", "size", "dim", "repeat",
}  # fmt: skip
_ADDITIONS = {operator.add, operator.iadd, torch.add}
_PRODUCTS = {operator.mul, operator.imul, torch.mul}


class SquaredNetwork(fx.Interpreter):
    """Runs a network's graph with squared parameters on scaled values.

    `spreads`: what each layer norm divides by; None takes every norm layer for the identity.
    """

    def __init__(self, module: fx.GraphModule, spreads: Mapping[str, float] | None) -> None:
        super().__init__(module)
        self.extra_traceback = False  # a refusal is one sentence
        self._spreads = spreads

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter outside any layer, squared."""
        value = super().get_attr(target, args, kwargs)
        return Scaled(value.double().square(), kind="parameter") if isinstance(value, nn.Parameter) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A layer, activation, pool or norm."""
        part, name = self.fetch_attr(str(target)), str(target)
        if args[0].kind == "scores" and not isinstance(part, (nn.Softmax, nn.Dropout, nn.Identity)):
            raise unknown("a network that multiplies activations")
        if isinstance(part, _SAME) or (self._spreads is None and isinstance(part, _NORMS)):
            return args[0]
        if isinstance(part, _GATES):
            return _gate(args[0])
        if isinstance(part, _POOLS):
            return args[0].mapped(part)
        if isinstance(part, _LAYERS):
            return _affine_layer(part, args[0])
        if isinstance(part, _BATCH_NORMS):
            return _batch_norm(part, args[0])
        if (
            self._spreads is not None
            and isinstance(part, nn.LayerNorm)
            and type(part).__name__ in _LAST_AXIS_NORMS
        ):
            return _layer_norm(part, args[0], self._spreads[name])
        if isinstance(part, nn.Softmax):
            return _mean_attention(args[0], part.dim if part.dim is not None else -1)
        raise unknown(f"{name}, a {type(part).__name__},")

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The same written as a function; sums, products and attention."""
        scaled = [value for value in _flat(args) if isinstance(value, Scaled)]
        if not scaled or (target is operator.getitem and isinstance(args[0], tuple)):
            return super().call_function(target, args, kwargs)
        if target in _SAME_FUNCTIONS or (self._spreads is None and target in _NORM_FUNCTIONS):
            return args[0]
        if target in _GATE_FUNCTIONS:
            return _gate(args[0])
        if target is getattr and args[1] in ("shape", "dtype", "device", "ndim"):
            return getattr(args[0].tensor, args[1])
        if target in _HOMOGENEOUS_FUNCTIONS and len(scaled) == 1:
            return args[0].mapped(target, *args[1:], **kwargs)
        if target in _ADDITIONS and len(args) == 2 and not kwargs:
            return _sum(*args)
        if target in _PRODUCTS and len(args) == 2:
            return _product(*args)
        if target is operator.truediv and isinstance(args[1], (int, float)) and args[1] > 0:
            return args[0].mapped(operator.truediv, args[1])
        if target is torch.cat:
            return _concatenated(*args, **kwargs)
        if target is F.scaled_dot_product_attention:
            return _attended(args[0], args[2])
        if target in (F.softmax, torch.softmax):
            return _mean_attention(args[0], int(kwargs.get("dim", args[1] if len(args) > 1 else -1)))
        if target in (operator.matmul, torch.matmul) and len(scaled) == 2:
            mixes = "attention" in (args[0].kind, args[1].kind)
            kind, scale = "value" if mixes else "scores", args[0].log_scale + args[1].log_scale
            return Scaled(args[0].tensor @ args[1].tensor, scale, kind)
        raise unknown(f"a network with {getattr(target, '__name__', target)}")

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The same written as a method of a tensor."""
        if not isinstance(args[0], Scaled):
            return super().call_method(target, args, kwargs)
        if target in _SAME_METHODS:
            return args[0]
        if target in ("sigmoid", "sigmoid_"):
            return _gate(args[0])
        if target == "softmax":
            return _mean_attention(args[0], int(kwargs.get("dim", args[1] if len(args) > 1 else -1)))
        if target in _HOMOGENEOUS_METHODS:
            return args[0].mapped(getattr(Tensor, str(target)), *args[1:], **kwargs)
        raise unknown(f"a network with .{target}()")


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for value in args:
        found += _flat(value) if isinstance(value, (tuple, list)) else [value]
    return found


def _affine_layer(layer: Any, x: Scaled) -> Scaled:
    """The layer with squared weights, its bias brought to the input's scale."""
    bias = layer.bias
    state = {"weight": layer.weight.square()}
    if bias is not None:
        state["bias"] = torch.zeros_like(bias)
    out = Scaled(functional_call(layer, state, (x.tensor,)), x.log_scale)
    if bias is None:
        return out
    shape = (-1,) if isinstance(layer, nn.Linear) else (-1, *[1] * (layer.weight.ndim - 2))
    return _sum(out, Scaled(bias.square().view(shape)))


def _batch_norm(norm: Any, x: Scaled) -> Scaled:
    """A batch norm that no layer could take up: a scale and a shift per channel."""
    scale = (norm.running_var + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight)
    shift = (0 if norm.bias is None else norm.bias) - scale * norm.running_mean
    shape = (-1, *[1] * (x.tensor.ndim - 2))
    return _sum(x.mapped(torch.mul, scale.square().view(shape)), Scaled(shift.square().view(shape)))


def _layer_norm(norm: nn.LayerNorm, x: Scaled, spread: float) -> Scaled:
    """(x − mean of x) / spread · scale + shift, each entry of that linear map squared."""
    axes = last_axes(norm)
    n = math.prod(norm.normalized_shape)
    centred = (1 - 2 / n) * x.tensor + x.tensor.sum(axes, keepdim=True) / n**2
    scale = torch.ones((), device=x.tensor.device) if norm.weight is None else norm.weight
    out = Scaled(centred * (scale / spread).square(), x.log_scale)
    return out if norm.bias is None else _sum(out, Scaled(norm.bias.square()))


def _sum(left: Any, right: Any) -> Scaled:
    if not (isinstance(left, Scaled) and isinstance(right, Scaled)):
        raise unknown("a network that adds constants")
    scale = max(left.log_scale, right.log_scale)
    kind = "scores" if "scores" in (left.kind, right.kind) else "value"
    return Scaled(left.at(scale) + right.at(scale), scale, kind)


def _gate(x: Scaled) -> Scaled:
    return Scaled(torch.ones_like(x.tensor), kind="gate")


def _product(left: Any, right: Any) -> Scaled:
    if not isinstance(left, Scaled):
        left, right = right, left
    if isinstance(right, Scaled):
        if left.kind in ("gate", "parameter"):
            left, right = right, left
        if right.kind not in ("gate", "parameter"):
            raise unknown("a network that multiplies activations")
        return Scaled(left.tensor * right.tensor, left.log_scale + right.log_scale, left.kind)
    if not isinstance(right, (int, float)) or right < 0:
        raise unknown("a network that multiplies with a negative constant")
    out: Scaled = left.mapped(torch.mul, right)
    return out


def _concatenated(parts: Any, dim: int = 0, **_: Any) -> Scaled:
    scale = max(part.log_scale for part in parts)
    return Scaled(torch.cat([part.at(scale) for part in parts], dim), scale)


def _mean_attention(scores: Scaled, dim: int) -> Scaled:
    return Scaled(torch.full_like(scores.tensor, 1 / scores.tensor.shape[dim]), kind="attention")


def _attended(query: Scaled, value: Scaled) -> Scaled:
    mean = value.tensor.mean(-2, keepdim=True)
    return Scaled(mean.expand(*mean.shape[:-2], query.tensor.shape[-2], -1), value.log_scale)


def last_axes(norm: nn.LayerNorm) -> list[int]:
    """The axes that a layer norm normalises."""
    return list(range(-len(norm.normalized_shape), 0))
