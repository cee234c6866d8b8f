"""Readings of measures that only this process has: those made in a notebook or a program."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.api.readings import Reading, read
from genbench.engine.cells import Cost, NetworkCells, Outcome, Status
from genbench.errors import NotApplicable, UserError, described, one_line
from genbench.plugin.registry import Source
from genbench.suites.result import MeasureResult

if TYPE_CHECKING:
    from genbench.api.suites import LoadedSuite
    from genbench.plugin.contract import Measure
    from genbench.runs.execute import RunOptions
    from genbench.subject import Subject

__all__ = ["THIS_PROCESS", "outcome_of", "read_here"]

THIS_PROCESS = Source("file", "this program")
"""Of measures whose code is in no file that another process could load."""


def read_here(
    loaded: LoadedSuite, measures: list[Measure], how: RunOptions, *, shown: bool
) -> dict[str, MeasureResult]:
    """Every measure on every network, in this process; one network at a time is in memory."""
    from genbench.report.progress import counted

    if not measures:
        return {}
    outcomes: dict[str, dict[str, Outcome]] = {measure.name: {} for measure in measures}
    for network in counted(loaded.plan.networks, "read in this process", shown=shown, name=_label):
        try:
            subject = _subject(loaded, network, how)
        except UserError as problem:
            failed = Outcome(Status.FAILED, one_line(str(problem)))
            for measure in measures:
                outcomes[measure.name][network.label] = failed
            continue
        for measure in measures:
            outcomes[measure.name][network.label] = outcome_of(measure, subject)
    return {
        measure.name: MeasureResult(measure.info, THIS_PROCESS, outcomes[measure.name])
        for measure in measures
    }


def _label(network: NetworkCells) -> str:
    return network.label


def _subject(loaded: LoadedSuite, network: NetworkCells, how: RunOptions) -> Subject:
    from genbench.api.networks import load_subject

    return load_subject(loaded.suite, loaded.plan, network, loaded.store, how)


def outcome_of(measure: Measure, subject: Subject) -> Outcome:
    """The reading as a run has it: whatever the measure raises becomes a status and a reason."""
    try:
        found = read(measure, subject)
    except NotApplicable as refusal:
        return Outcome(Status.NOT_APPLICABLE, one_line(str(refusal)) or "the measure gave no reason")
    except UserError as problem:
        return Outcome(Status.INVALID, one_line(str(problem)))
    except MemoryError as problem:
        return Outcome(Status.OUT_OF_MEMORY, described(problem), output=traceback.format_exc())
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
        return Outcome(Status.FAILED, described(problem) + where, output=traceback.format_exc())
    return _ok(found)


def _ok(found: Reading) -> Outcome:
    detail = found.detail()
    result = {"value": float(found), "detail": detail} if detail else {"value": float(found)}
    return Outcome(Status.OK, result=result, cost=Cost(found.seconds, found.shared_seconds, found.peak_bytes))
