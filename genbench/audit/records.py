"""Audits as records: the readings of a measure on the networks of the pack that ships, and what they give.

A record holds readings, and truths are in the pack, so that whoever has it can find the verdicts and draw the
figures anew. That is done whenever one is read: what does not follow from its readings is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from genbench._version import __version__
from genbench.audit.execute import MeasureReadings, packed_truths
from genbench.audit.observed import AuditReading, AuditTruth, Observed
from genbench.audit.plan import plan_audit, shipped_pack
from genbench.audit.report import MeasureAudit, audit_of
from genbench.audit.setups import STRESSORS
from genbench.conformance.kit import CheckResult
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.packs.record_types import Count, RecordPart, Text
from genbench.plugin.contract import MeasureInfo
from genbench.plugin.registry import Source

__all__ = ["AuditEvidence", "AuditRecord", "audit_evidence", "read_audit", "read_audits", "write_audits"]

_LARGEST = 2**20
"""Bytes of a record; real ones have some 20,000."""
_NAME = "^[a-z][a-z0-9_]*$"
_Words = Annotated[str, Meta(max_length=1000)]


class RecordedVerdict(RecordPart, frozen=True):
    """What a stressor says, for those who read records; here it is found anew."""

    stressor: Text
    verdict: Text
    why: _Words
    number: float | None


class RecordedPair(RecordPart, frozen=True):
    """What the measure does to two networks that compute one function."""

    name: Text
    outcome: Text
    detail: _Words


class AuditedReadings(RecordPart, frozen=True):
    """Readings of all networks of the pack, in the order of the audit's plan."""

    values: Annotated[list[float | None], Meta(max_length=10_000)]
    standard_errors: Annotated[list[float | None], Meta(max_length=10_000)]
    """As the measure states them; empty if it states none."""
    repeats: dict[Annotated[str, Meta(pattern="^[0-9]+$")], list[float]]
    """Place of a network to its values with other draws of shared parts."""
    missing: Annotated[dict[_Words, list[Count]], Meta(max_length=1000)]
    """Why there is no value, to the places of the networks."""


class AuditRecord(RecordPart, frozen=True):
    """`leaderboards/audits/MEASURE.json`."""

    schema: Literal["genbench audit 1"]
    measure: Annotated[str, Meta(pattern=_NAME, max_length=100)]
    version: Text
    summary: Annotated[str, Meta(max_length=500)]
    higher_means: Literal["worse", "better"]
    logarithm: bool
    kind: Literal["built-in", "package", "file"]
    distribution: Text
    genbench: Text
    pack: Text
    """Its version, with the beginning of its hash."""
    survived: Count
    stressors: list[RecordedVerdict]
    card: Annotated[list[RecordedPair], Meta(max_length=50)]
    readings: AuditedReadings


@dataclass(frozen=True)
class AuditEvidence:
    """The networks that records are of."""

    pack: str
    truths: Mapping[str, AuditTruth]
    """By name, in the order in which records list them."""


def audit_evidence() -> AuditEvidence:
    """Of the pack that ships."""
    pack = shipped_pack()
    if pack is None:
        raise UserError("this genbench ships no pack of the audit, or one of other networks")
    return AuditEvidence(pack.version, packed_truths(plan_audit(list(STRESSORS), pack), pack))


# -- writing -----------------------------------------------------------------------------------------------


def write_audits(audits: Sequence[MeasureAudit], folder: Path, pack: str) -> list[Path]:
    """MEASURE.json of every measure."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in audits:
            path = folder / f"{one.readings.measure.name}.json"
            write_atomically(path, _text(_record(one, pack)))
            written.append(path)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    return written


def _text(record: AuditRecord) -> str:
    """One line per field."""
    fields = msgspec.to_builtins(record, order="sorted")
    lines = (f" {_json(name)}: {_json(value)}" for name, value in sorted(fields.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _record(audit: MeasureAudit, pack: str) -> AuditRecord:
    measure, source = audit.readings.measure, audit.readings.source
    return AuditRecord(
        schema="genbench audit 1",
        measure=measure.name,
        version=measure.version,
        summary=measure.summary,
        higher_means=measure.higher_means,
        logarithm=measure.logarithm,
        kind=source.kind,
        distribution=source.distribution,
        genbench=__version__,
        pack=pack,
        survived=audit.survived,
        stressors=[
            RecordedVerdict(
                stressor=one.stressor, verdict=one.verdict, why=one.why, number=_shown(one.number)
            )
            for one in audit.verdicts
        ],
        card=[RecordedPair(name=one.name, outcome=str(one.outcome), detail=one.detail) for one in audit.card],
        readings=_readings(audit.readings.observed),
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _shown(number: float | None) -> float | None:
    """Of a verdict: to ten digits, which are the same on every processor."""
    return number if number is None else _finite(float(f"{number:.10g}"))


def _readings(observed: Observed) -> AuditedReadings:
    taken = [observed.readings[label] for label in observed.truths]
    errors = [_finite(one.standard_error) for one in taken]
    missing: dict[str, list[int]] = {}
    for place, one in enumerate(taken):
        if one.value is None:
            missing.setdefault(one.reason[:1000], []).append(place)
    return AuditedReadings(
        values=[one.value for one in taken],
        standard_errors=[] if all(error is None for error in errors) else errors,
        repeats={str(place): list(one.repeats) for place, one in enumerate(taken) if one.repeats},
        missing=missing,
    )


# -- reading -----------------------------------------------------------------------------------------------


def read_audits(folder: Path) -> dict[str, MeasureAudit]:
    """Measure to its audit, of all records in a folder; none where there is no folder."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    evidence = audit_evidence() if files else None
    found = {}
    for path in files:
        if path.is_symlink() or path.suffix != ".json" or not path.is_file():
            raise UserError(f"{path} is no record of an audit; these are plain files MEASURE.json")
        assert evidence is not None
        found[path.stem] = read_audit(path, evidence)
    return found


def read_audit(path: Path, evidence: AuditEvidence) -> MeasureAudit:
    """A record that anyone may have sent, with the verdicts that its readings give."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"{path} is larger than any record of an audit")
        record = msgspec.json.decode(path.read_bytes(), type=AuditRecord)
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} is not a record of an audit ({problem})") from None
    if record.measure != path.stem:
        raise UserError(f"{path} is of {record.measure!r}; its name must be that of the measure")
    if record.pack != evidence.pack:
        raise UserError(
            f"{path} is of the networks of {record.pack!r}, and genbench ships {evidence.pack!r}; audit it "
            f"again with `genbench audit --measure {record.measure} --records DIR`"
        )
    audit = audit_of(_measured(record, evidence, path), list(STRESSORS), _card(record))
    said = {one.stressor: one.verdict for one in record.stressors}
    if said != {one.stressor: one.verdict for one in audit.verdicts} or record.survived != audit.survived:
        raise UserError(f"{path}: its verdicts are not those that its readings give")
    return audit


def _measured(record: AuditRecord, evidence: AuditEvidence, path: Path) -> MeasureReadings:
    taken, count = record.readings, len(evidence.truths)
    reasons = {place: why for why, places in taken.missing.items() for place in places}
    fits = len(taken.values) == count and len(taken.standard_errors) in (0, count)
    if not fits or {p for p, value in enumerate(taken.values) if value is None} != reasons.keys():
        raise UserError(f"{path} has not one reading, or a reason for none, of each of {count} networks")
    errors = taken.standard_errors or [None] * count
    readings = {
        label: AuditReading(value, error, taken.repeats.get(str(place), []), reasons.get(place, ""))
        for place, (label, value, error) in enumerate(zip(evidence.truths, taken.values, errors, strict=True))
    }
    measure = MeasureInfo(
        name=record.measure,
        summary=record.summary,
        higher_means=record.higher_means,
        logarithm=record.logarithm,
        version=record.version,
    )
    source = Source(record.kind, record.distribution, record.distribution)
    observed = Observed.of(evidence.truths, readings, record.logarithm, record.higher_means)
    return MeasureReadings(measure, source, observed, {})


def _card(record: AuditRecord) -> list[CheckResult]:
    return [CheckResult(one.name, "science", one.outcome, one.detail) for one in record.card]
