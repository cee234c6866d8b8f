"""One verdict per stressor, with the number and the two networks behind it.

A network enters a comparison only if its held-out error is that of the others within tau (`error_margin`):
000's premise is that what changes barely affects the network. A change of a measure counts only beyond three
standard errors of its readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from genbench.audit.cases import Case
from genbench.audit.equal_networks import exponential_cases, spread_cases
from genbench.audit.going_on import drift_cases, hysteresis_cases
from genbench.audit.learning_curves import slope_cases
from genbench.audit.observed import Observed, Rows
from genbench.audit.signals import label_cases, pixel_cases, task_cases
from genbench.errors import UserError

__all__ = ["VERDICTS", "StressorVerdict", "judge"]

VERDICTS = ("robust", "fragile", "blind", "not applicable")
_MOST_MISSING = 0.5


@dataclass(frozen=True)
class StressorVerdict:
    """What a stressor says of a measure."""

    stressor: str
    verdict: str
    """One of `VERDICTS`."""
    why: str
    """In words, with the number: "slope flips: b = −0.41, 0.22"."""
    number: float | None
    """The statistic behind it."""
    networks: tuple[str, str] | None
    """The two networks that gave it."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Everything that was measured, by name."""
    notes: Sequence[str] = ()


def judge(observed: Observed, stressor: str) -> StressorVerdict:
    """The verdict of one stressor on the readings of one measure."""
    rows = observed.rows(stressor, *(("drift",) if stressor == "hysteresis" else ()))
    total = len(rows.rows) + rows.missing
    if not total:
        raise UserError(f"there are no networks of stressor {stressor!r}")
    notes = []
    if rows.missing:
        notes.append(f"{rows.missing} of {total} networks have no reading ({rows.reason})")
    if rows.rows and not rows.logs:
        notes.append("a reading is not positive: ranks and relative changes instead of logarithms")
    if rows.missing > _MOST_MISSING * total:
        return _not_applicable(stressor, notes[0], notes[1:])
    numbers: dict[str, float] = {}
    cases = _JUDGES[stressor](rows, numbers)
    if isinstance(cases, str):
        return _not_applicable(stressor, cases, notes)
    case = max(cases, key=lambda one: (_SEVERITY[one.verdict], abs(one.number)))
    return StressorVerdict(stressor, case.verdict, case.why, case.number, case.networks, numbers, notes)


_SEVERITY = {"robust": 0, "blind": 1, "fragile": 2}
_Judge = Callable[[Rows, dict[str, float]], "list[Case] | str"]


def _not_applicable(stressor: str, why: str, notes: Sequence[str]) -> StressorVerdict:
    return StressorVerdict(stressor, "not applicable", why, None, None, {}, notes)


_JUDGES: Mapping[str, _Judge] = {
    "slope": slope_cases,
    "drift": drift_cases,
    "hysteresis": hysteresis_cases,
    "labels": label_cases,
    "tasks": task_cases,
    "pixels": pixel_cases,
    "exp": exponential_cases,
    "spread": spread_cases,
}
