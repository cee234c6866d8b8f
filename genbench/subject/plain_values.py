"""Values that one process can hand to another: JSON, and tensors within it."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import torch
from torch import Tensor

__all__ = ["plain", "with_tensors"]

_MARK = "genbench tensor"


def plain(value: Any) -> Any:
    """The same as JSON has it; tensors become dictionaries that `with_tensors` knows."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encoded))


def _encoded(value: Any) -> Any:
    if not isinstance(value, Tensor):
        raise NotImplementedError(f"{type(value).__name__} cannot be shared; give numbers, texts or tensors")
    held = value.detach().cpu().contiguous()
    content = held.reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = str(held.dtype).removeprefix("torch.")
    return {_MARK: kind, "shape": list(held.shape), "content": base64.b64encode(content).decode()}


def with_tensors(value: Any, device: torch.device) -> Any:
    """The value with its tensors, each in memory of its own."""
    if isinstance(value, list):
        return [with_tensors(one, device) for one in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: with_tensors(one, device) for key, one in value.items()}
    content = bytearray(base64.b64decode(value["content"]))
    kind = getattr(torch, value[_MARK])
    if not content:
        return torch.zeros(value["shape"], dtype=kind, device=device)
    return torch.frombuffer(content, dtype=kind).reshape(value["shape"]).to(device)
