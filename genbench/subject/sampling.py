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
    from genbench.subject.inputs import Inputs
    from genbench.subject.subject import TrainedNetwork

__all__ = ["double_backward", "drawn_by_size", "example_order", "examples"]


def example_order(m: int) -> Tensor:
    """The rows of a training set of m examples in one fixed order, drawn once for all networks.

    Every row number has a random rank of its own, the same whatever m: the subset for a smaller size is part
    of that for a larger one, and what two training sets that begin alike both have comes in the same order.
    """
    generator = torch.Generator("cpu").manual_seed(derive_seed("examples"))
    # Drawn as integers, which come one after the other, so that more rows do not change the first ones.
    return torch.randint(2**62, (m,), generator=generator, device="cpu").argsort()


def examples(network: TrainedNetwork, size: int) -> tuple[Inputs, Tensor]:
    """The first `size` training examples of the fixed order; all of them if there are no more.

    The order is random, so consecutive ones are random groups, as the jackknife wants them.
    """
    rows = example_order(len(network.labels))[:size]
    return network.inputs.chosen(rows), network.labels[rows]


def drawn_by_size(
    sizes: Tensor, count: int, generator: torch.Generator, *, mixed: bool = False
) -> tuple[Tensor, Tensor]:
    """About `count` rows in the fixed order, larger ones more often, and how likely each was to be drawn.

    Sizes are positive. The chance is in proportion to the size, and 1 where that would be more. A sum over
    all rows is that over the drawn ones of value / chance, without bias (Horvitz and Thompson 1952), and the
    more precise the closer values are to being in proportion to sizes. Drawn systematically: one random
    start, then equal steps through the summed chances.

    `mixed`: the rows in a random order instead. In the fixed one the start is all that is drawn; the few
    samples that leaves may differ by more, or by less, than groups of one of them do.
    """
    order = example_order(len(sizes))
    if len(order) <= count:
        return order, torch.ones(len(order), dtype=torch.float64, device="cpu")
    if mixed:
        order = order[torch.randperm(len(order), generator=generator, device="cpu")]
    ordered = sizes.cpu().double()[order]  # the same draw on every device
    certain = torch.zeros(len(order), dtype=torch.bool, device="cpu")
    chance = torch.ones(len(order), dtype=torch.float64, device="cpu")
    while int(certain.sum()) < count:
        chance = ordered * ((count - certain.sum()) / ordered[~certain].sum())
        chance[certain] = 1.0
        more = (chance >= 1) & ~certain
        if not more.any():
            break
        certain |= more
    start = torch.rand((), dtype=torch.float64, generator=generator, device="cpu")
    steps = (chance.cumsum(0) + start).floor()
    drawn = certain | (steps.diff(prepend=steps.new_zeros(1)) > 0)
    return order[drawn], chance[drawn].clamp(max=1.0)


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
