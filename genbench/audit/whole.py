"""A whole audit of measures: their readings on all networks, their invariances, and the verdicts on both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from genbench.audit.execute import observe
from genbench.audit.plan import AuditPlan
from genbench.audit.report import MeasureAudit, audit_of
from genbench.conformance import run_checks
from genbench.conformance.kit import INVARIANCE, CheckResult
from genbench.engine.guard import Limits
from genbench.engine.scheduler import Progress
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry
from genbench.runs.execute import RunOptions

__all__ = ["audit_measures"]

_CARD_MEMORY = 2**32


def audit_measures(
    plan: AuditPlan,
    stressors: Sequence[str],
    entries: Sequence[Entry[Measure]],
    store: Path,
    progress: Progress,
    *,
    card_seconds: float | None,
    **how: Unpack[RunOptions],
) -> list[MeasureAudit]:
    """One audit per measure, in their order.

    Parameters
    ----------
    stressors : those of the plan.
    card_seconds : time limit of one check of the invariance card; None leaves the card out.
    """
    found = observe(plan, entries, store, progress, **how)
    cards = {entry.item.name: _card(entry, card_seconds) for entry in entries}
    return [audit_of(one, list(stressors), cards[one.measure.name]) for one in found]


def _card(entry: Entry[Measure], seconds: float | None) -> list[CheckResult]:
    if seconds is None:
        return []
    limits = Limits(seconds, _CARD_MEMORY)
    return run_checks(entry.source, entry.item.name, limits, only=INVARIANCE).results
