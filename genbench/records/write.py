"""Result records: the readings and scores of one measure on one suite, as a JSON file.

`genbench run --records DIR` writes them and `genbench schema` says what is in them. Leaderboards are made
from those under `leaderboards/records` of a checkout. They are also the reference rows that a measure is
ranked among: taken only if suite, evidence, measure and versions are the same as in the run at hand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.engine.cells import Cost, Outcome, Status
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.keys import canonical_json, text_hash
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry
from genbench.records.schema import SCHEMA
from genbench.suites import Suite

if TYPE_CHECKING:
    from genbench.run.runs import MeasureReport, Plan, Reference, RunReport

__all__ = [
    "REFERENCES",
    "SCHEMA",
    "body_hash",
    "find_references",
    "record_name",
    "record_text",
    "require_recordable",
    "write_records",
]

REFERENCES = Path(__file__).parent.parent.parent / "leaderboards" / "records"
"""Of a checkout; an installed package has none, and runs show the baselines alone."""


def record_name(suite: Suite, measure: Measure) -> Path:
    """Where a record lies below its folder."""
    return Path(suite.name) / f"{measure.name}.json"


def require_recordable(suite: Suite) -> None:
    """Refuse what cannot be compared with others' results: a subset, or a suite with changed fields."""
    if suite.quick:
        raise UserError("--quick results are not comparable and cannot be recorded; run without --quick")
    if suite.changes:
        raise UserError(
            f"{suite.title} is not {suite.name} as others run it, so it cannot be recorded; drop the options "
            "that change the suite, or give it a file and a name of its own"
        )


def write_records(report: RunReport, folder: Path) -> int:
    """Write a record of every measure that this run computed or found stored; returns how many."""
    require_recordable(report.plan.suite)
    written = 0
    for measure in report.measures:
        if measure.reference:
            continue
        path = folder / record_name(report.plan.suite, measure.measure)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, record_text(_record(report, measure)))
        written += 1
    return written


def record_text(record: Mapping[str, Any]) -> str:
    """The one text of a record: the same values give the same bytes. One line per field, and per reading."""
    fields = (f" {_compact(key)}: {_field(value)}" for key, value in sorted(record.items()))
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _field(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _compact(value)
    return "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def body_hash(record: Mapping[str, Any]) -> str:
    """sha256 of everything in a record but its own hash."""
    return text_hash(canonical_json({key: value for key, value in record.items() if key != "sha256"}))


def _record(report: RunReport, measure: MeasureReport) -> dict[str, Any]:
    from genbench.records.provenance import plugin_record, provenance
    from genbench.subject.version import SUBJECT_VERSION

    item = measure.measure
    outcomes = measure.outcomes.values()
    body = {
        "schema": SCHEMA,
        "suite": report.plan.suite.name,
        "evidence": _evidence(report.plan),
        "subject_version": SUBJECT_VERSION,
        "measure": {
            "name": item.name,
            "version": item.version,
            "category": item.category,
            "summary": item.summary,
            "description": item.description,
            "paper": item.paper,
            "higher_means": item.higher_means,
            "logarithm": item.logarithm,
            "randomness": item.randomness,
            "needs": sorted(item.needs),
        },
        "plugin": plugin_record(Entry(item, measure.source)),
        "provenance": provenance(report.plan, item.name),
        "readings": [_reading(report.plan, item.name, *found) for found in measure.outcomes.items()],
        "statuses": dict(Counter(str(outcome.status) for outcome in outcomes)),
        "cost": {
            "seconds": sum(outcome.cost.seconds for outcome in outcomes),
            "shared_seconds": sum(outcome.cost.shared_seconds for outcome in outcomes),
            "peak_bytes": max((outcome.cost.peak_bytes for outcome in outcomes), default=0),
        },
        "sign_error": _score(measure),
    }
    return {**body, "sha256": body_hash(body)}


def _reading(plan: Plan, measure: str, subject: str, outcome: Outcome) -> dict[str, Any]:
    cell = plan.readings[measure, subject]
    return {
        "subject": subject,
        "status": str(outcome.status),
        "reason": outcome.reason,
        "value": outcome.value,
        "detail": dict(outcome.result.get("detail", {})),
        "seconds": outcome.cost.seconds,
        "shared_seconds": outcome.cost.shared_seconds,
        "peak_bytes": outcome.cost.peak_bytes,
        "seed": cell.inputs["seed"],
        "key": cell.key,
    }


def _score(measure: MeasureReport) -> dict[str, Any] | None:
    from genbench.report.runs import measure_record

    found: dict[str, Any] | None = measure_record(measure)["sign_error"]
    return found


def _evidence(plan: Plan) -> str | None:
    """What tells evidence apart: the hash of its pack; None if it was built here."""
    pack = plan.evidence.pack
    return None if pack is None else pack.hash


def find_references(
    plan: Plan, entries: Iterable[Entry[Measure]], folder: Path | None = None
) -> dict[str, Reference]:
    """Recorded readings, by measure, of the `entries` with a record for this very evidence."""
    from genbench.run.runs import Reference
    from genbench.subject.version import SUBJECT_VERSION

    evidence = _evidence(plan)
    if evidence is None or plan.suite.quick:
        return {}
    subjects = {subject.label for subject in plan.evidence.subjects}
    found = {}
    for entry in entries:
        record = _read((folder or REFERENCES) / record_name(plan.suite, entry.item))
        same = (
            record.get("schema") == SCHEMA
            and record.get("evidence") == evidence
            and record.get("subject_version") == SUBJECT_VERSION
            and record.get("measure", {}).get("version") == entry.item.version
            and entry.source.kind == "built-in"
            and record.get("sha256") == body_hash(record)
        )
        if not same:
            continue
        outcomes = {r["subject"]: _outcome(r) for r in record["readings"] if r["subject"] in subjects}
        if outcomes.keys() == subjects:
            found[entry.item.name] = Reference(entry, outcomes, record["sign_error"])
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # no reference is no reason to stop a run
    return record if isinstance(record, dict) else {}


def _outcome(reading: Mapping[str, Any]) -> Outcome:
    cost = Cost(reading["seconds"], reading["shared_seconds"], reading["peak_bytes"])
    result = {} if reading["value"] is None else {"value": reading["value"], "detail": reading["detail"]}
    return Outcome(Status(reading["status"]), reading["reason"], result, cost, computed=False)
