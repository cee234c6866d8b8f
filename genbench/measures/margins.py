"""The output margin alone, and norms of all parameters over it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.errors import NotApplicable
from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DATA = frozenset({"weights", "training_data"})
_EPS = 1e-6
"""eps of 002 Eq. 6 to 9: margins nearer to 0 count as this."""


@measure(category="margin", needs=_DATA, paper="001 (11)", cost="low")
def inverse_margin(subject: Subject) -> float:
    """Inverse of the 10th-percentile margin on the training set.

    sqrt(C / m) with C = 1 / gamma², gamma = |margin at rank floor(m/10) from below|.
    """
    return 1 / (subject.margin() * math.sqrt(subject.m))


@measure(category="margin", needs=_DATA, paper="002 (6)", cost="low")
def inverse_margin_p10(subject: Subject) -> float:
    """Inverse of the 10th-percentile margin, with its sign.

    1 / (sign(q)·max(|q|, eps)), q = margin at rank floor(m/10) from below, eps = 1e-6.

    Limits: it jumps from −∞ to +∞ where the 10th percentile crosses 0, so it orders networks sensibly only
    among those that classify more than nine tenths of their training set right.
    """
    q = subject.signed_margin()
    if q == 0:
        raise NotApplicable("the 10th-percentile margin is 0")
    return 1 / math.copysign(max(abs(q), _EPS), q)


@measure(category="margin", needs=_DATA, paper="002 (7)", cost="low")
def l2_over_margin_p10(subject: Subject) -> float:
    """Norm of all parameters over the 10th-percentile margin.

    ||theta||_2 / max(|q|, eps), q = margin at rank floor(m/10) from below, eps = 1e-6.

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not.
    """
    squares = sum(float(p.cpu().double().square().sum()) for p in subject.parameters())
    return math.sqrt(squares) / max(abs(subject.signed_margin()), _EPS)


@measure(category="margin", needs=_DATA, paper="002 (9)", cost="low")
def margin_normalized_param_norm(subject: Subject) -> float:
    """Another name of l2_over_margin_p10.

    ||theta||_2 / max(|q|, eps): 002 lists both, and computes one by the other.
    """
    return l2_over_margin_p10(subject)


@measure(category="margin", needs=_DATA, paper="002 (8)", cost="low")
def l1_over_margin_p10(subject: Subject) -> float:
    """Sum of all parameters' sizes over the 10th-percentile margin.

    ||theta||_1 / max(|q|, eps), q = margin at rank floor(m/10) from below, eps = 1e-6.

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not.
    """
    total = sum(float(p.cpu().double().abs().sum()) for p in subject.parameters())
    return total / max(abs(subject.signed_margin()), _EPS)


MEASURES = [
    inverse_margin,
    inverse_margin_p10,
    l2_over_margin_p10,
    margin_normalized_param_norm,
    l1_over_margin_p10,
]
