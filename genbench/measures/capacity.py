"""Counting parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="capacity", paper="001 (10)", cost="low")
def params(subject: Subject) -> float:
    """Square root of the number of weights per training example.

    sqrt(omega / m), omega = number of weights of convolution and linear layers, biases not counted.
    """
    omega = sum(weight.numel() for weight in subject.weights())
    return math.sqrt(omega / subject.m)


@measure(category="capacity", paper="002 A.1", cost="low")
def param_count(subject: Subject) -> float:
    """Number of trainable parameters.

    W = the number of entries of theta, biases included. In 002 it is called params; that name is 001's here.

    Limits: blind to training, so networks of one architecture are all alike to it.
    """
    return float(sum(parameter.numel() for parameter in subject.parameters()))


@measure(category="capacity", paper="002 (5)", cost="low")
def vcdim(subject: Subject) -> float:
    """VC-dimension proxy from the parameter count.

    W log W, W = number of trainable parameters; the growth of the bounds of Bartlett et al. 2019 for
    piecewise-linear networks, without their factor for depth. 002 says that it takes Eq. 15 of Jiang et al.
    2020 instead where inputs are images; genbench takes W log W, as printed, for all.

    Limits: blind to training; orders networks exactly as param_count does.
    """
    count = sum(parameter.numel() for parameter in subject.parameters())
    return count * math.log(count) if count else 0.0


MEASURES = [params, param_count, vcdim]
