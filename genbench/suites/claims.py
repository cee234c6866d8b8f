"""What may be claimed of the measures of a suite, from their readings (SPEC.md 6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from genbench.errors import UserError
from genbench.suites.result import MeasureResult

if TYPE_CHECKING:
    from genbench.scoring.claims import Claims
    from genbench.suites.evidence import Evidence

__all__ = ["find_claims"]


def find_claims(
    evidence: Evidence, results: Sequence[MeasureResult], again: Collection[str] = ()
) -> Claims | None:
    """Judge these measures together; None where a suite does not say what its measures can be asked.

    Answers that came with recorded readings are taken over; those of `again` are found all the same.
    """
    import numpy as np

    from genbench.scoring.claims import claim
    from genbench.scoring.verdicts import Answer

    try:
        known = evidence.known_networks()
    except UserError:
        return None
    readings = {}
    for one in results:
        values = one.values
        readings[one.name] = one.direction * np.array([values.get(name, np.nan) for name in known.names])
    answered = {
        one.name: {question: Answer(**numbers) for question, numbers in one.answers.items()}
        for one in results
        if one.answers
    }
    return claim(known, readings, seed=evidence.suite.bootstrap_seed, answered=answered, again=again)
