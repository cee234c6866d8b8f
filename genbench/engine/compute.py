"""Where a guarded process computes: its device and its threads. Free of torch until a device is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import torch

__all__ = ["Compute", "autocast", "begin", "compute_device", "current", "use"]


class Compute(msgspec.Struct, frozen=True):
    """Facts of a computation that, up to rounding, change no result; no part of a key but for `autocast`."""

    device: str = "cpu"
    """As torch names it."""
    threads: int = 1
    """Of torch, in one cell."""
    autocast: bool = False
    """Whether features are computed in bfloat16."""


_current = Compute()


def use(compute: Compute) -> None:
    """Let this process compute so from now on."""
    global _current
    _current = compute


def current() -> Compute:
    """How this process computes."""
    return _current


def compute_device() -> torch.device:
    """Where steps and readings of this process put their tensors."""
    import torch

    return torch.device(_current.device)


def autocast() -> AbstractContextManager[object]:
    """Around what computes features: bfloat16 where asked for, else nothing."""
    if not _current.autocast:
        return nullcontext()
    import torch

    return torch.autocast(compute_device().type, dtype=torch.bfloat16)


def begin(compute: Compute, memory: int) -> None:
    """In a guarded process, before its first piece of work."""
    import torch

    from genbench.subject.fitting import set_memory_limit

    use(compute)
    set_memory_limit(memory)
    if torch.get_num_threads() != compute.threads:
        torch.set_num_threads(compute.threads)
