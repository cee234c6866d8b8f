"""What a cell is computed with: its device and its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import torch

__all__ = ["Compute", "compute_device", "current", "use"]


class Compute(Struct, frozen=True):
    """Device and threads of a cell; no part of its key."""

    device: str = "cpu"
    threads: int = 1
    autocast: bool = False


_current = Compute()


def use(compute: Compute) -> None:
    """Let every cell that this process computes from now on be computed with `compute`."""
    global _current
    _current = compute


def current() -> Compute:
    """What this process computes with."""
    return _current


def compute_device() -> torch.device:
    """The device that steps move what they compute on to."""
    import torch

    return torch.device(_current.device)
