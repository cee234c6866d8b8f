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

__all__ = ["body_hash", "keys_hash", "record_text", "require_recordable", "write_records"]


_DECIMALS = 6
"""Of seconds: microseconds."""
_DIGITS = 6
"""Of details, which nothing is computed from."""


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
    kind, pack = kind_of(plan.suite), plan.evidence.pack
    readings = [_reading(*found) for found in measure.outcomes.items()]
    record = Record(
        schema=SCHEMA,
        suite=plan.suite.name,
        evidence=None if pack is None else pack.hash,
        subject_version=SUBJECT_VERSION,
        measure=about(measure.measure),
        plugin=plugin_record(entry),
        provenance=provenance(plan, measure.name),
        readings=readings,
        keys=keys_hash(plan, measure.name),
        statuses=dict(Counter(str(reading.status) for reading in readings)),
        cost=RecordedCost(
            seconds=sum(reading.seconds for reading in readings),
            shared_seconds=sum(reading.shared_seconds for reading in readings),
            peak_bytes=max((reading.peak_bytes for reading in readings), default=0),
        ),
        sign_error=None if measure.score is None else to_builtins(kind.recorded(measure.score)),
        sha256="",
    )
    return structs.replace(record, sha256=body_hash(to_builtins(record)))


def keys_hash(plan: Plan, measure: str) -> str:
    """Hash of the keys of a measure's readings, which nobody can say who has not its source and evidence."""
    keys = {network: cell.key for (name, network), cell in plan.readings.items() if name == measure}
    return text_hash(canonical_json(keys))


def _reading(network: str, outcome: Outcome) -> Reading:
    said: dict[str, Any] = {
        "subject": network,
        "status": outcome.status,
        "reason": outcome.reason,
        "value": outcome.value,
        "detail": _rounded(outcome.detail),
        "seconds": round(outcome.cost.seconds, _DECIMALS),
        "shared_seconds": round(outcome.cost.shared_seconds, _DECIMALS),
        "peak_bytes": outcome.cost.peak_bytes,
        "device": outcome.cost.device,
        "threads": outcome.cost.threads,
        "sandbox": "none" if outcome.cost.sandbox == "none" else "landlock+seccomp",
    }
    # msgspec leaves out what is the default itself, not what is merely equal to it.
    unsaid = {field.name: field.default for field in structs.fields(Reading)}
    return Reading(**{name: value for name, value in said.items() if value != unsaid[name]})


def _rounded(detail: Any) -> Any:
    if isinstance(detail, Mapping):
        return {name: _rounded(part) for name, part in detail.items()}
    if isinstance(detail, (list, tuple)):
        return [_rounded(part) for part in detail]
    return float(f"{detail:.{_DIGITS}g}") if isinstance(detail, float) else detail
