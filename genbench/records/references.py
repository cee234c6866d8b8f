"""Recorded readings that ship with genbench: the rows that every run is ranked among.

One compact file per suite with a board, made from its records by `genbench leaderboard build`, so that an
installed genbench ranks a measure among the same rows as a checkout does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from genbench.engine.cells import Cost, Outcome, Status
from genbench.errors import UserError
from genbench.packs.record_types import Count, RecordPart, Seconds, Sha256
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.records.record import SCHEMA, About, Plugin, Record
from genbench.records.results import info_of, source_of
from genbench.runs.plan import Plan
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.kind import Kind, kind_of
from genbench.suites.result import MeasureResult

__all__ = ["REFERENCES", "find_references", "recorded_answers", "reference_text"]

REFERENCES = Path(__file__).parent / "references"
"""Package data."""


Scores = TypeVar("Scores")
Answers = Mapping[str, Mapping[str, float | None]]
"""Question to value, ends of the interval and p."""


class Reference(RecordPart, Generic[Scores], frozen=True):
    """What ranking needs of one record, with the scores of its suite's kind."""

    measure: About
    plugin: Plugin
    seconds: Seconds
    """Of all readings, shared parts included."""
    values: list[float | None]
    """In the order of the networks."""
    statuses: dict[str, tuple[Status, str]]
    """Network to status and reason, where there is no value."""
    sign_error: Scores | None
    """Of kinds whose scores take long to compute."""
    answers: dict[str, dict[str, float | None]] = msgspec.field(default_factory=dict)
    """What the measure answers, whoever stands beside it."""


class References(RecordPart, Generic[Scores], frozen=True):
    """All records of a suite."""

    schema: Count
    evidence: Sha256
    subject_version: Count
    networks: list[str]
    measures: list[Reference[Scores]]


def reference_text(
    records: Sequence[Record], kind: Kind, answers: Mapping[str, Answers] | None = None
) -> str:
    """The file of a suite; one line per measure, with its `answers`."""
    first = records[0]
    networks = [reading.subject for reading in first.readings]
    head = {
        "schema": SCHEMA,
        "evidence": first.evidence,
        "subject_version": first.subject_version,
        "networks": networks,
    }
    lines = [
        _line(record, networks, kind, (answers or {}).get(record.name, {}))
        for record in sorted(records, key=lambda one: one.name)
    ]
    fields = [f" {json.dumps(key)}: {_compact(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join(fields) + ',\n "measures": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def _line(record: Record, networks: Sequence[str], kind: Kind, answers: Answers) -> str:
    readings = {reading.subject: reading for reading in record.readings}
    return "  " + _compact(
        {
            "measure": msgspec.to_builtins(record.measure),
            "plugin": msgspec.to_builtins(record.plugin),
            "seconds": record.cost.seconds + record.cost.shared_seconds,
            "values": [readings[network].value for network in networks],
            "statuses": {
                network: [str(readings[network].status), readings[network].reason]
                for network in networks
                if readings[network].value is None
            },
            "sign_error": record.sign_error if kind.slow_scores else None,
            "answers": dict(answers),
        }
    )


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def find_references(plan: Plan, but: Collection[str] = ()) -> dict[str, MeasureResult]:
    """Measure to its recorded readings on this very evidence; without those named in `but`.

    A record counts only if suite, evidence, measure and versions are the same as in the run at hand.
    """
    pack = plan.evidence.pack
    known = _read(REFERENCES / f"{plan.suite.name}.json", kind_of(plan.suite).score_type)
    if (
        known is None
        or pack is None
        or plan.suite.quick
        or known.evidence != pack.hash
        or known.subject_version != SUBJECT_VERSION
    ):
        return {}
    wanted = [network.label for network in plan.evidence.networks]
    if not set(wanted) <= set(known.networks):
        return {}
    return {
        one.measure.name: _result(one, known.networks, wanted)
        for one in known.measures
        if one.measure.name not in but and _same_code(one)
    }


def recorded_answers(records: Sequence[Record], kind: Kind) -> dict[str, Answers]:
    """Measure to the answers that ship with genbench, if they were found with the readings of its record."""
    known = _read(REFERENCES / f"{records[0].suite}.json", kind.score_type)
    if known is None:
        return {}
    found = {one.measure.name: one for one in known.measures}
    answers: dict[str, Answers] = {}
    for record in records:
        reference = found.get(record.name)
        if reference is None or (record.evidence, record.subject_version) != (
            known.evidence,
            known.subject_version,
        ):
            continue
        values = {reading.subject: reading.value for reading in record.readings}
        if record.measure == reference.measure and values == dict(
            zip(known.networks, reference.values, strict=True)
        ):
            answers[record.name] = reference.answers
    return answers


def _same_code(reference: Reference[msgspec.Struct]) -> bool:
    """Whether this genbench would give the same readings; of one not installed here, nobody can tell."""
    entry, plugin = load_registry().measures.get(reference.measure.name), reference.plugin
    if entry is None:
        return plugin.kind != BUILT_IN
    if entry.source.kind != plugin.kind:
        return False
    same_package = plugin.kind == BUILT_IN or entry.source.distribution == plugin.distribution
    return same_package and entry.item.version == reference.measure.version


def _result(
    reference: Reference[msgspec.Struct], networks: Sequence[str], wanted: Sequence[str]
) -> MeasureResult:
    values = dict(zip(networks, reference.values, strict=True))
    cost = Cost(reference.seconds / len(networks))
    outcomes = {}
    for network in wanted:
        status, reason = reference.statuses.get(network, (Status.OK, ""))
        value = values[network]
        found = {} if value is None else {"value": value}
        outcomes[network] = Outcome(status, reason, found, cost, computed=False)
    return MeasureResult(
        info_of(reference.measure),
        source_of(reference.plugin),
        outcomes,
        recorded=reference.sign_error if len(wanted) == len(networks) else None,
        answers=reference.answers if len(wanted) == len(networks) else None,
        reference=True,
    )


def _read(path: Path, scores: type[msgspec.Struct]) -> References[msgspec.Struct] | None:
    """None where a suite has no board, or the file is of another version: a run can do without.

    Raises
    ------
    UserError
        If it is damaged: ranks among rows that are not what was recorded would be wrong without a word.
    """
    if not os.path.isfile(path):  # noqa: PTH113  a suite of anyone's may have a name that no file can have
        return None
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}); reinstall genbench") from None
    try:
        if msgspec.json.decode(content, type=_Version).schema != SCHEMA:
            return None
        found: References[msgspec.Struct] = msgspec.json.decode(content, type=References[scores])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{path} is damaged: it holds no recorded readings; reinstall genbench") from None
    if any(len(one.values) != len(found.networks) for one in found.measures):
        raise UserError(f"{path} is damaged: a measure lacks readings; reinstall genbench")
    return found


class _Version(msgspec.Struct):
    schema: int
