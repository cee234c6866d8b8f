"""Weight files of others: safetensors or torch's own format, read without running anything in them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from genbench.errors import UserError, described, one_line

__all__ = ["load_weights", "read_weights"]

_STATE = "state_dict"
_SHOWN = 2


def read_weights(file: Path, strip: str = "") -> dict[str, Tensor]:
    """The state dict in `file`, or under its key "state_dict"; `strip` is taken off the front of keys."""
    found: Any
    try:
        if file.suffix == ".safetensors":
            found = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        raise UserError(
            f"{file} holds more than tensors, and genbench runs no code out of files; save "
            "model.state_dict() alone, best as safetensors"
        ) from problem
    except (OSError, EOFError, RuntimeError, ValueError, SafetensorError) as problem:
        raise UserError(f"{file} cannot be read as weights: {one_line(described(problem), 120)}") from problem
    if isinstance(found, Mapping) and isinstance(found.get(_STATE), Mapping):
        found = found[_STATE]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(
            f"{file} holds {type(found).__name__}, expected a state dict, or a dict with the key {_STATE!r}"
        )
    return {str(key).removeprefix(strip): value for key, value in found.items()}


def load_weights(model: nn.Module, state: Mapping[str, Tensor], file: Path, who: str) -> None:
    """Give a network its weights; a `UserError` says which keys do not fit."""
    try:
        model.load_state_dict(dict(state), strict=True)
    except RuntimeError as problem:
        raise UserError(f"{file} does not fit {who}: {_misfit(model.state_dict(), state)}") from problem


def _misfit(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    lacking = [key for key in own if key not in given]
    strange = [key for key in given if key not in own]
    for prefix in sorted({key.partition(".")[0] + "." for key in strange}):
        if lacking and all(f"{prefix}{key}" in given for key in lacking):
            return f'its keys start with {prefix!r}; write strip = "{prefix}" in [networks]'
    said = [
        f"it {verb} {_few(keys)}" for verb, keys in (("lacks", lacking), ("has the unknown", strange)) if keys
    ]
    if not said:
        key = next(key for key, value in own.items() if value.shape != given[key].shape)
        said = [f"{key} is {_shape(given[key])}, expected {_shape(own[key])}"]
    return "; ".join(said)


def _few(keys: list[str]) -> str:
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more keys" if more > 0 else "")


def _shape(value: Tensor) -> str:
    return "×".join(map(str, value.shape)) or "a number"
