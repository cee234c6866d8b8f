"""Where to compute what is defined in float64."""

from __future__ import annotations

import torch

from genbench.engine.compute import compute_device
from genbench.subject.precision import wide

__all__ = ["precise_device"]


def precise_device() -> torch.device:
    """The device of this process's steps, or the CPU where that device has no float64."""
    device = compute_device()
    return device if wide(device) == torch.float64 else torch.device("cpu")
