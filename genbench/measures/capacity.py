"""Counting parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="capacity", paper="001 (10)")
def params(subject: Subject) -> float:
    """Square root of the number of weights per training example.

    sqrt(omega / m), omega = number of weights of convolution and linear layers, biases not counted.
    """
    omega = sum(weight.numel() for weight in subject.weights())
    return math.sqrt(omega / subject.m)


MEASURES = [params]
