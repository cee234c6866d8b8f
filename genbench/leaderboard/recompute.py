"""Computes readings of a record again, and says how well they agree."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from genbench.engine.cells import Outcome, Status
from genbench.errors import UserError
from genbench.leaderboard.tolerance import TOLERANCE, tolerance_of
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry, load_registry
from genbench.records.provenance import package_versions, plugin_record, processor
from genbench.records.record import Record
from genbench.report.progress import make_progress
from genbench.runs.execute import RunOptions, bring_to_end, workers_of
from genbench.runs.plan import make_plan
from genbench.suites.evidence_packs import shipped_evidence

__all__ = ["Agreement", "compare", "draw", "recompute", "require_measure", "what_differs"]


@dataclass(frozen=True)
class Agreement:
    """One reading of a record beside the same computed now."""

    measure: str
    subject: str
    recorded: float | None
    found: float | None
    recorded_status: str
    status: str
    tolerance: float = TOLERANCE.elsewhere
    """What the two may differ by, relatively: see `genbench.leaderboard.tolerance`."""
    sealed: bool = True
    """Whether it was recomputed in a sandbox."""

    @property
    def same_bits(self) -> bool:
        """Whether nothing at all differs."""
        return self.recorded == self.found and self.recorded_status == self.status

    @property
    def difference(self) -> float:
        """Relative; 0 for two equal refusals, infinite for a value against a refusal."""
        if self.same_bits:
            return 0.0
        if self.recorded is None or self.found is None:
            return math.inf
        return abs(self.recorded - self.found) / max(abs(self.recorded), abs(self.found))

    @property
    def agrees(self) -> bool:
        """To the bit, or within the tolerance."""
        return self.difference <= self.tolerance


def require_measure(record: Record) -> Entry[Measure]:
    """The registered measure that a record is about, in the version it is about."""
    about, plugin = record.measure, record.plugin
    entry = load_registry().measures.get(about.name)
    if entry is None:
        origin = f"{plugin.distribution or plugin.name} {plugin.version}".strip()
        raise UserError(f"measure {about.name!r} is not installed here; it was offered by {origin}")
    if entry.item.version != about.version:
        raise UserError(
            f"measure {about.name!r} has version {entry.item.version} here, and the record has version "
            f"{about.version}; install genbench {record.provenance.genbench}"
        )
    return entry


def recompute(
    chosen: Mapping[str, Sequence[str]],
    suite: str,
    *,
    store: Path | None = None,
    quiet: bool = False,
    **how: Unpack[RunOptions],
) -> dict[tuple[str, str], Outcome]:
    """Compute the readings of measures on networks of a suite, `chosen` by name.

    Parameters
    ----------
    store : where to keep them; unless given, a folder that is gone afterwards, so that nothing is taken from
        an earlier run.
    """
    evidence = shipped_evidence(suite)
    entries = [load_registry().get("measures", name) for name in chosen]
    plan = make_plan(evidence.suite, entries, pack=evidence.pack)
    wanted = {(name, subject) for name, subjects in chosen.items() for subject in subjects}
    plan = replace(plan, readings={place: cell for place, cell in plan.readings.items() if place in wanted})
    with ExitStack() as stack:
        folder = store or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="genbench-again-")))
        jobs = workers_of(plan, folder, how)
        progress = stack.enter_context(make_progress(plan, folder, jobs=jobs, quiet=quiet))
        outcomes = bring_to_end(plan, folder, progress, lambda _, found: dict(found), **how)
    return {place: outcomes[cell.key] for place, cell in plan.readings.items()}


def compare(record: Record, found: Mapping[tuple[str, str], Outcome]) -> list[Agreement]:
    """Every recorded reading that was computed again."""
    return [
        Agreement(
            record.name,
            reading.subject,
            reading.value,
            found[record.name, reading.subject].value,
            str(reading.status),
            str(found[record.name, reading.subject].status),
            tolerance_of(record, reading, found[record.name, reading.subject].cost),
            found[record.name, reading.subject].cost.sandbox != "none",
        )
        for reading in record.readings
        if (record.name, reading.subject) in found
    ]


def draw(
    records: Sequence[Record], sample: int, seed: int, slowest: float = math.inf
) -> dict[str, list[str]]:
    """`sample` random readings of measures that are installed: measure to networks.

    Parameters
    ----------
    slowest : readings that took more seconds than this are left out.
    """
    places = [
        (record.name, reading.subject)
        for record in records
        for reading in record.readings
        if record.name in load_registry().measures
        and reading.status is Status.OK
        and reading.seconds + reading.shared_seconds <= slowest
    ]
    chosen: dict[str, list[str]] = {}
    for name, subject in sorted(random.Random(seed).sample(places, min(sample, len(places)))):
        chosen.setdefault(name, []).append(subject)
    return chosen


def what_differs(record: Record, entry: Entry[Measure]) -> list[str]:
    """What is not as it was when the record was made, one sentence each."""
    then, now = record.provenance.packages, package_versions()
    found = [
        f"{name} was {then.get(name, 'not installed')} and is {now.get(name, 'not installed')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    known, here = record.provenance.platform.processor, processor()
    if known and here and known != here:
        found.append(f"the processor was {known} and is {here}")
    if record.plugin.sha256 != plugin_record(entry).sha256:
        found.append("the source code of the measure is another")
    return found
