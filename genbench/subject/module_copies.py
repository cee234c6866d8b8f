"""Networks of one architecture with weights of their own, without building or tracing each anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["can_be_copied", "tensors_of", "with_same_tensors", "with_state"]

M = TypeVar("M", bound=nn.Module)
_TENSORS = ("_parameters", "_buffers", "_modules")
_PLAIN = (
    bool, int, float, complex, str, bytes, type, Enum, FunctionType, BuiltinFunctionType,
    torch.dtype, torch.device, torch.memory_format, torch.layout,
)  # fmt: skip


def with_state(module: M, state: Mapping[str, Tensor]) -> M:
    """A copy of `module` whose parameters and buffers are the tensors of `state` themselves.

    As `copy.deepcopy` and `load_state_dict(state)` would have it, in a tenth of their time: to take a network
    out of a stack costs little more than to read its weights. For modules that `can_be_copied`.
    """
    left = dict(state)

    def taken(name: str, old: Tensor, *, kept: bool) -> Tensor:
        if not kept and name not in left:  # a buffer that is no part of a state
            return old.clone()
        tensor = left.pop(name)
        if tensor.shape != old.shape:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, expected {tuple(old.shape)}")
        return nn.Parameter(tensor, old.requires_grad) if isinstance(old, nn.Parameter) else tensor

    copied = _copied(module, taken)
    if left:
        raise ValueError(f"there is no place for {', '.join(sorted(left))}")
    return copied


def with_same_tensors(module: M) -> M:
    """A copy of `module` with the very same parameters and buffers, whose parts can be replaced."""
    return _copied(module, lambda name, old, *, kept: old)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, those that are there twice too."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def can_be_copied(module: nn.Module) -> bool:
    """Whether all that a module knows beside its tensors and parts are plain values.

    No part and no tensor may be there twice: the copy would have two. Of fx's graphs, which are shared by
    copies, only what they are made of counts.
    """
    parts = [part for _, part in module.named_modules(remove_duplicate=False)]
    tensors = list(tensors_of(module).values())
    if len({id(one) for one in parts}) < len(parts) or len({id(one) for one in tensors}) < len(tensors):
        return False
    return all(
        isinstance(part, torch.fx.GraphModule)
        or all(_is_plain(value) for name, value in vars(part).items() if name not in _TENSORS)
        for part in parts
    )


def _is_plain(value: object) -> bool:
    if value is None or isinstance(value, _PLAIN):
        return True
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, partial):
        return all(map(_is_plain, (value.func, value.args, value.keywords)))
    return False


def _copied(module: M, taken: Callable[..., Tensor], prefix: str = "") -> M:
    """The copy; `taken` gives its tensor in the place of each of the module's."""
    # Not the class's own way: that of fx's graphs makes a class for every copy, and loses what it computes.
    new = object.__new__(module.__class__)
    # Hooks are kept in dictionaries, which are not to be shared.
    content: dict[str, Any] = {
        key: value.copy() if isinstance(value, dict) else value for key, value in vars(module).items()
    }
    content["_parameters"] = {
        name: None if old is None else taken(prefix + name, old, kept=True)
        for name, old in module._parameters.items()
    }
    content["_buffers"] = {
        name: None
        if old is None
        else taken(prefix + name, old, kept=name not in module._non_persistent_buffers_set)
        for name, old in module._buffers.items()
    }
    content["_modules"] = {
        name: None if old is None else _copied(old, taken, f"{prefix}{name}.")
        for name, old in module._modules.items()
    }
    vars(new).update(content)
    return new
