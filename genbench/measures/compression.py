"""How short a description of the trained weights is enough (Lotfi et al. 2022, cited by 004)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from torch import Tensor, nn

    from genbench.subject import Subject

__all__ = ["MEASURES", "adaptive_code_bits"]

_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Widths of the quantiser's cells, in units of each tensor's root mean square change."""
_SCALE_BITS = 16
"""Bits for the scale of one tensor, rounded to half precision."""
_DELTA = 0.05


def adaptive_code_bits(counts: Tensor) -> float:
    """Bits of an adaptive arithmetic code for a sequence with these counts of its symbols.

    The coder starts from equal counts of ½ and learns as it goes (Krichevsky & Trofimov), so that no table
    of frequencies needs to be sent; the order of the symbols does not matter. An arithmetic coder ends
    within 2 bits of this, which are added.
    """
    counts = counts.cpu().double()
    size, total = len(counts), float(counts.sum())
    half = torch.full_like(counts, 0.5)
    log_p = (
        math.lgamma(size / 2)
        - math.lgamma(total + size / 2)
        + float((torch.lgamma(counts + half) - torch.lgamma(half)).sum())
    )
    return -log_p / math.log(2) + 2


def _elias_bits(number: int) -> int:
    """Length of the Elias gamma code of a positive integer."""
    return 2 * number.bit_length() - 1


def _quantised(changes: list[Tensor], step: float) -> tuple[list[Tensor], float]:
    """The changes as the decoder gets them, and the bits that took."""
    scales = [float(c.cpu().double().square().mean().sqrt().half()) for c in changes]
    levels = [
        torch.zeros_like(c) if scale == 0 else (c / (step * scale)).round()
        for c, scale in zip(changes, scales, strict=True)
    ]
    symbols = torch.cat([level.flatten() for level in levels]).long()
    largest = int(symbols.abs().max())
    counts = torch.bincount(symbols + largest, minlength=2 * largest + 1)
    bits = adaptive_code_bits(counts) + _elias_bits(largest + 1) + _SCALE_BITS * len(changes)
    decoded = [level * (step * scale) for level, scale in zip(levels, scales, strict=True)]
    return decoded, bits


def _bound(subject: Subject, model: nn.Module, excess: float, best: float) -> float:
    """Training error of `model` + `excess`; examples are left out once that is no less than `best`."""
    wrong, bound = 0, excess
    with torch.no_grad():
        for x, y in subject.batches():
            wrong += int((model(x).argmax(1) != y).sum())
            bound = wrong / subject.m + excess
            if bound >= best:
                break
    return bound


@measure(
    category="compression",
    needs={"weights", "initial_weights", "training_data"},
    paper="004 (Lotfi et al. 2022)",
    cost="medium",
)
def compression_bound(subject: Subject) -> float:
    """PAC-Bayes bound from the compressed size of the weights' change in training.

    min over quantiser steps of R + sqrt((K log 2 + 2 log K + log(m·5/delta) + 2) / (2m − 1)): R = training
    error with quantised changes, K = bits of their adaptive arithmetic code with the scale of each tensor,
    delta = .05; the universal prior gives a string of K bits at least 2^(−K − 2 log2 K), and the 5 steps
    share delta. Running statistics of batch norm are coded as weights are. (McAllester's bound, as in Lotfi
    et al. Eq. 1)

    Limits: they also train in a random subspace to make the change short; here the network is taken as it
    is, so the bound is vacuous (above 1) wherever there are more weights than training examples. A freshly
    initialised head counts as a change.
    """
    model, initial = subject.model, subject.initial_model.state_dict()
    state = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    if any(name not in initial or initial[name].shape != value.shape for name, value in state.items()):
        raise NotApplicable("the initial network has other parameters than the trained one")
    changes = [value - initial[name] for name, value in state.items()]
    if max(float(change.abs().max()) for change in changes if change.numel()) > 6e4:
        raise NotApplicable("the weights moved by more than half precision can hold")
    m, best = subject.m, math.inf
    for step in reversed(_STEPS):  # the shortest code first: longer ones may be beaten whatever their error
        decoded, bits = _quantised(changes, step)
        complexity = bits * math.log(2) + 2 * math.log(bits) + math.log(m * len(_STEPS) / _DELTA) + 2
        excess = math.sqrt(complexity / (2 * m - 1))
        if excess >= best:
            continue
        with torch.no_grad():
            for (name, value), change in zip(state.items(), decoded, strict=True):
                value.copy_(initial[name] + change)
        best = min(best, _bound(subject, model, excess, best))
    return best


MEASURES = [compression_bound]
