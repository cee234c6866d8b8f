"""How much noise the weights bear."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.contract import measure
from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="flatness", needs={"weights", "training_data"}, randomness="seeded", paper="001 (30)")
def pacbayes_flatness(subject: Subject) -> float:
    """Inverse of the weight noise that costs a tenth of the training accuracy.

    sqrt(C / m) with C = 1 / sigma², sigma by a Monte-Carlo bisection (`Subject.sigma`).
    """
    sigma = subject.sigma()
    if sigma == 0:
        raise NotApplicable("no noise at all costs a tenth of the training accuracy")
    return 1 / (sigma * math.sqrt(subject.m))


MEASURES = [pacbayes_flatness]
