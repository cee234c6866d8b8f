"""How precisely sums are accumulated and matrices decomposed, on devices that may have no float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["precise", "wide"]

_WITHOUT_FLOAT64 = {"mps"}


def wide(device: torch.device) -> torch.dtype:
    """The type in which sums on `device` run: float64, or float32 where the device has nothing wider."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def precise(tensor: Tensor) -> Tensor:
    """The values in float64, on the CPU where their device has none: where single precision would not do."""
    if wide(tensor.device) != torch.float64:
        tensor = tensor.cpu()
    return tensor.to(torch.float64)
