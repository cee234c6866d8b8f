"""The anchors of every table: a measure that does not beat them has said nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="baseline", needs=(), randomness="seeded", cost="low")
def baseline_random(subject: Subject) -> float:
    """A random number, the same for the same network and seed."""
    return torch.rand((), generator=subject.generator, dtype=torch.float64, device="cpu").item()


@measure(category="baseline", needs=(), cost="low")
def baseline_constant(subject: Subject) -> float:
    """Always 1: every pair of networks is a tie."""
    return 1.0


@measure(category="baseline", cost="low")
def baseline_size(subject: Subject) -> float:
    """Number of trainable parameters, biases included."""
    return float(sum(parameter.numel() for parameter in subject.parameters()))


MEASURES = [baseline_random, baseline_constant, baseline_size]
