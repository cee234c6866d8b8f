"""How precisely sums are accumulated."""

from __future__ import annotations

import torch

__all__ = ["wide"]

_WITHOUT_FLOAT64 = {"mps"}


def wide(device: torch.device) -> torch.dtype:
    """The type in which sums on `device` run: float64, or float32 where the device has nothing wider."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64
