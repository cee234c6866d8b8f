"""The output margin alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="margin", needs={"weights", "training_data"}, paper="001 (11)")
def inverse_margin(subject: Subject) -> float:
    """Inverse of the 10th-percentile margin on the training set.

    sqrt(C / m) with C = 1 / gamma², gamma = |margin at rank floor(m/10) from below|.
    """
    return 1 / (subject.margin() * math.sqrt(subject.m))


MEASURES = [inverse_margin]
