"""How a process computes: its device and its threads. Free of torch until a device is asked for.

Hosts keep networks on the CPU and touch no accelerator. Guarded processes, which `begin` here, do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import torch

__all__ = [
    "Compute",
    "autocast",
    "begin",
    "compute_device",
    "current",
    "device_name",
    "start_seconds",
    "starts_fresh",
    "use",
]

_STARTS: dict[str, Literal["fork", "fresh"]] = {"mps": "fresh"}
"""Type of device to how a guarded process starts, where that is not by a fork. CUDA needs no more than that
nothing before the fork has touched it; Metal does not survive a fork at all."""


_FRESH_SECONDS = 120.0
"""For a fresh process to import torch and load a network."""


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


def device_name(device: str) -> str:
    """The type of a device and, of a GPU, what it is called; asks the GPU, so only for guarded processes."""
    kind = device.partition(":")[0]
    if kind != "cuda":
        return kind
    import torch

    return f"{kind} {torch.cuda.get_device_name(torch.device(device))}"


def starts_fresh(compute: Compute) -> bool:
    """Whether guarded processes are started anew, with imports of their own, and not forked."""
    return _STARTS.get(compute.device.partition(":")[0]) == "fresh"


def start_seconds(compute: Compute) -> float:
    """What the start of a guarded process may take, beside the time that its work has."""
    return _FRESH_SECONDS if starts_fresh(compute) else 0.0


def begin(compute: Compute, memory: int) -> None:
    """In a guarded process, before its memory is limited and its work begins.

    The device is touched here, so that what its driver takes of the host's memory does not count.
    """
    import torch

    from genbench.subject.fitting import set_memory_limit

    use(compute)
    set_memory_limit(memory)
    if torch.get_num_threads() != compute.threads:
        torch.set_num_threads(compute.threads)
    if compute.device.startswith("cuda"):
        device = torch.device(compute.device)
        torch.cuda.set_device(device)
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory / whole), device)
