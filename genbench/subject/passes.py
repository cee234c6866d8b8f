"""Forward passes for answers alone, as fast as a processor makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from genbench.subject.subject import TrainedNetwork

__all__ = ["answers", "channels_last", "quick_attention"]


def channels_last(images: Tensor) -> Tensor:
    """Images with their channels last in memory, as oneDNN convolves few channels: in a third less time.

    Batch norm on statistics of the batch takes half the time, too. Other inputs as they are.
    """
    return images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images


@contextmanager
def quick_attention() -> Iterator[None]:
    """Without the fused path of `nn.MultiheadAttention`, which takes longer than its parts do."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def answers(network: TrainedNetwork) -> Callable[[Tensor], Tensor]:
    """The class that the network gives each input: by the folded one, which has no batch norms to pass.

    Its outputs are the network's but for rounding; where there is none, the network's own.
    """
    folded = network.folded
    model = network.model if isinstance(folded, NotApplicable) else folded.module

    def give(x: Tensor) -> Tensor:
        with torch.no_grad(), quick_attention():
            found: Tensor = model(channels_last(x)).argmax(1)
        return found

    return give
