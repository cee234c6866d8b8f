"""Writes result records: `genbench run --records DIR`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

from genbench.engine.cells import Outcome
from genbench.engine.compute import current
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.keys import canonical_json, text_hash
from genbench.plugin.registry import Entry
from genbench.records.provenance import plugin_record, provenance
from genbench.records.record import SCHEMA, Reading, Record, RecordedCost
from genbench.records.results import about
from genbench.runs.execute import RunResult
from genbench.runs.plan import Plan
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.kind import kind_of
from genbench.suites.result import MeasureResult
from genbench.suites.suite import Suite

__all__ = ["body_hash", "record_text", "require_recordable", "write_records"]


def require_recordable(suite: Suite) -> None:
    """Refuse what cannot be compared with others' results: a subset, or a suite with changed fields."""
    if suite.quick:
        raise UserError("--quick results are not comparable and cannot be recorded; run without --quick")
    if current().autocast:
        raise UserError("features in bfloat16 are not comparable with others' results; drop --autocast")
    if suite.changes:
        raise UserError(
            f"{suite.title} is not {suite.name} as others run it, so it cannot be recorded; drop the options "
            "that change the suite, or give it a file and a name of its own"
        )


def write_records(result: RunResult, folder: Path) -> int:
    """Write a record of every measure that this run computed or found stored; returns how many."""
    require_recordable(result.plan.suite)
    entries = {entry.item.name: entry for entry in result.plan.measures}
    written = 0
    for measure in result.measures:
        if measure.reference:
            continue
        path = folder / result.plan.suite.name / f"{measure.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = _record(result.plan, entries[measure.name], measure)
        write_atomically(path, record_text(to_builtins(record)))
        written += 1
    return written


RecordValues = Mapping[str, Any]
"""A record as JSON has it: whoever sent it may have put anything there."""


def record_text(record: RecordValues) -> str:
    """The one text of a record: the same values give the same bytes. One line per field, and per reading."""
    fields = (f" {_compact(key)}: {_field(value)}" for key, value in sorted(record.items()))
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _field(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _compact(value)
    return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def body_hash(record: RecordValues) -> str:
    """sha256 of everything in a record but its own hash."""
    return text_hash(canonical_json({key: value for key, value in record.items() if key != "sha256"}))


def _record(plan: Plan, entry: Entry[Any], measure: MeasureResult) -> Record:
    kind, pack, outcomes = kind_of(plan.suite), plan.evidence.pack, measure.outcomes.values()
    record = Record(
        schema=SCHEMA,
        suite=plan.suite.name,
        evidence=None if pack is None else pack.hash,
        subject_version=SUBJECT_VERSION,
        measure=about(measure.measure),
        plugin=plugin_record(entry),
        provenance=provenance(plan, measure.name),
        readings=[_reading(plan, measure.name, *found) for found in measure.outcomes.items()],
        statuses=dict(Counter(str(outcome.status) for outcome in outcomes)),
        cost=RecordedCost(
            seconds=sum(outcome.cost.seconds for outcome in outcomes),
            shared_seconds=sum(outcome.cost.shared_seconds for outcome in outcomes),
            peak_bytes=max((outcome.cost.peak_bytes for outcome in outcomes), default=0),
        ),
        sign_error=None if measure.score is None else to_builtins(kind.recorded(measure.score)),
        sha256="",
    )
    return structs.replace(record, sha256=body_hash(to_builtins(record)))


def _reading(plan: Plan, measure: str, network: str, outcome: Outcome) -> Reading:
    cell = plan.readings[measure, network]
    return Reading(
        subject=network,
        status=outcome.status,
        reason=outcome.reason,
        value=outcome.value,
        detail=dict(outcome.detail),
        seconds=outcome.cost.seconds,
        shared_seconds=outcome.cost.shared_seconds,
        peak_bytes=outcome.cost.peak_bytes,
        seed=cell.inputs["seed"],
        key=cell.key,
        device=outcome.cost.device,
        threads=outcome.cost.threads,
        sandbox="none" if outcome.cost.sandbox == "none" else "landlock+seccomp",
    )
