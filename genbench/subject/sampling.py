"""What the Monte-Carlo parts share: which training examples they see, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from genbench.keys import derive_seed

if TYPE_CHECKING:
    from genbench.subject.subject import TrainedNetwork

__all__ = ["double_backward", "example_order", "examples"]


def example_order(m: int) -> Tensor:
    """The rows of a training set of m examples in one fixed order, drawn once for all networks.

    Every row number has a random rank of its own, the same whatever m: the subset for a smaller size is part
    of that for a larger one, and what two training sets that begin alike both have comes in the same order.
    """
    generator = torch.Generator().manual_seed(derive_seed("examples"))
    # Drawn as integers, which come one after the other, so that more rows do not change the first ones.
    return torch.randint(2**62, (m,), generator=generator).argsort()


def examples(network: TrainedNetwork, size: int) -> tuple[Tensor, Tensor]:
    """The first `size` training examples of the fixed order; all of them if there are no more.

    The order is random, so consecutive ones are random groups, as the jackknife wants them.
    """
    rows = example_order(len(network.labels))[:size]
    return network.inputs[rows], network.labels[rows]


@contextmanager
def double_backward() -> Iterator[None]:
    """Attention in plain operations: the fused kernels can be differentiated once only, or not at all.

    `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` in eval mode have a fused path of their own.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
