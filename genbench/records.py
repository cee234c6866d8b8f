"""Result records: the readings and scores of one measure on one suite, as a JSON file.

`genbench run --records DIR` writes them. Those under `leaderboards/records` of a checkout are the reference
rows that a measure is ranked among: they are taken only if suite, evidence, measure and versions are the same
as in the run at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench import __version__
from genbench.contract import Measure
from genbench.engine.cells import Cost, Outcome, Status
from genbench.engine.store import write_atomically
from genbench.registry import Entry
from genbench.suites import Suite
from genbench.testbed.plan import TestbedPlan

if TYPE_CHECKING:
    from genbench.runs import MeasureReport, Plan, RunReport

__all__ = ["REFERENCES", "SCHEMA", "find_references", "record_name", "write_records"]

SCHEMA = 1
REFERENCES = Path(__file__).parent.parent / "leaderboards" / "records"
"""Of a checkout; an installed package has none, and runs show the baselines alone."""


def record_name(suite: Suite, measure: Measure) -> Path:
    """Where a record lies below its folder."""
    return Path(suite.name) / f"{measure.name}.json"


def write_records(report: RunReport, folder: Path) -> int:
    """Write a record of every measure that this run computed or found stored; returns how many."""
    written = 0
    for measure in report.measures:
        if measure.reference:
            continue
        path = folder / record_name(report.plan.suite, measure.measure)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_record(report, measure), indent=1, sort_keys=True, ensure_ascii=False)
        write_atomically(path, text + "\n")
        written += 1
    return written


def _record(report: RunReport, measure: MeasureReport) -> dict[str, Any]:
    from genbench.report.runs import measure_record
    from genbench.runs import SUBJECT_VERSION

    item = measure.measure
    return {
        "schema": SCHEMA,
        "genbench": __version__,
        "suite": report.plan.suite.name,
        "evidence": _evidence(report.plan),
        "subject_version": SUBJECT_VERSION,
        "measure": {
            "name": item.name,
            "version": item.version,
            "category": item.category,
            "higher_means": item.higher_means,
            "logarithm": item.logarithm,
            "paper": item.paper,
            "summary": item.summary,
            "source": str(measure.source),
        },
        **{key: value for key, value in measure_record(measure).items() if key in ("sign_error", "readings")},
    }


def _evidence(plan: Plan) -> str | None:
    """What tells evidence apart: the hash of its pack; None if it was built here."""
    pack = plan.evidence.pack if isinstance(plan.evidence, TestbedPlan) else None
    return None if pack is None else pack.hash


def find_references(
    plan: Plan, entries: Iterable[Entry[Measure]], folder: Path | None = None
) -> dict[str, dict[str, Outcome]]:
    """Recorded readings, by measure and subject, of the `entries` with a record for this very evidence."""
    from genbench.runs import SUBJECT_VERSION

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
        )
        if not same:
            continue
        outcomes = {r["subject"]: _outcome(r) for r in record["readings"] if r["subject"] in subjects}
        if outcomes.keys() == subjects:
            found[entry.item.name] = outcomes
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
