"""Networks of one architecture with weights of their own, without drawing initial weights for each."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

__all__ = ["with_state"]


def with_state(module: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of `module` whose parameters and buffers are the tensors of `state` themselves.

    As `copy.deepcopy` and `load_state_dict(state)` would have it, in a tenth of their time: to take a network
    out of a stack costs little more than to read its weights. For modules whose attributes are parameters,
    buffers, modules, hooks and plain values; no module may be part of another twice.
    """
    left = dict(state)
    copied = _copied(module, left, "")
    if left:
        raise ValueError(f"there is no place for {', '.join(sorted(left))}")
    return copied


def _copied(module: nn.Module, left: dict[str, Tensor], prefix: str) -> nn.Module:
    """The copy; takes out of `left` what it uses."""

    def taken(name: str, old: Tensor) -> Tensor:
        tensor = left.pop(prefix + name)
        if tensor.shape != old.shape:
            raise ValueError(f"{prefix + name} is {tuple(tensor.shape)}, expected {tuple(old.shape)}")
        return tensor

    new = module.__class__.__new__(module.__class__)
    # Hooks are kept in dictionaries, which are not to be shared.
    content = {key: value.copy() if isinstance(value, dict) else value for key, value in vars(module).items()}
    content["_parameters"] = {
        name: None if old is None else nn.Parameter(taken(name, old), old.requires_grad)
        for name, old in module._parameters.items()
    }
    content["_buffers"] = {
        name: None if old is None else taken(name, old) for name, old in module._buffers.items()
    }
    content["_modules"] = {
        name: None if old is None else _copied(old, left, f"{prefix}{name}.")
        for name, old in module._modules.items()
    }
    vars(new).update(content)
    return new
