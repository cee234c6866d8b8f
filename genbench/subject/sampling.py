"""What the Monte-Carlo parts share: subsets of the training set, and when to stop drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from genbench.keys import derive_seed

if TYPE_CHECKING:
    from genbench.subject.subject import TrainedNetwork

__all__ = ["RELATIVE_ERROR", "double_backward", "draw_until_precise", "examples", "relative_error"]

RELATIVE_ERROR = 0.05
"""Drawing stops where the standard error is this share of the mean, or where the budget ends."""


def examples(network: TrainedNetwork, size: int) -> tuple[Tensor, Tensor]:
    """`size` training examples drawn without replacement; all of them, in order, if there are no more.

    The draw depends on the two sizes alone: networks trained on one data set are compared on the same
    examples.
    """
    m = len(network.labels)
    if m <= size:
        return network.inputs, network.labels
    generator = torch.Generator().manual_seed(derive_seed("examples", m, size))
    rows = torch.randperm(m, generator=generator)[:size].sort().values
    return network.inputs[rows], network.labels[rows]


def draw_until_precise(draw: Callable[[], float], *, least: int, most: int) -> list[float]:
    """At least `least` values of `draw`, then until their mean is known to 5 % or there are `most`."""
    values: list[float] = []
    while len(values) < least or (len(values) < most and relative_error(values) > RELATIVE_ERROR):
        values.append(draw())
    return values


def relative_error(values: list[float]) -> float:
    """Standard error of the mean as a share of the mean."""
    sample = torch.tensor(values, dtype=torch.float64)
    mean = float(sample.mean().abs())
    return float(sample.std()) / len(values) ** 0.5 / mean if mean > 0 else float("inf")


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
