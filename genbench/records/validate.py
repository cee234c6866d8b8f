"""Reads result records that anyone may have sent, and refuses those that are not what they say."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.records.convert import WrongShape, convert
from genbench.records.record import MEASURE_NAME, SCHEMA, SUITE_NAME, Record
from genbench.records.results import result_of
from genbench.records.write import RecordValues, body_hash, record_text
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.evidence import Evidence
from genbench.suites.kind import Kind, kind_of
from genbench.suites.result import Judged, MeasureResult, Score

__all__ = ["LARGEST", "JudgedRecords", "judged_records", "read_record", "read_records", "record_files"]

LARGEST = 2**20
"""Bytes of a record; real ones have up to a tenth of it."""
_TOLERANCE = 1e-9
"""Of a recomputed sign-error: a mean of halves over pairs."""


@dataclass(frozen=True)
class JudgedRecords:
    """Records with the scores that their readings give."""

    records: Sequence[Record]
    judged: Judged
    """Results in the order of the records."""
    spared: frozenset[str] = frozenset()
    """Measures whose slow scores were taken as they are."""


def record_files(folder: Path) -> dict[str, list[Path]]:
    """Suite to the records in `folder`, by name; a `UserError` for anything else that lies there."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder} with records; `genbench run --records DIR` writes them")
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).parts
        if path.is_symlink():
            raise UserError(f"{path} is a link; records are plain files")
        if path.is_dir() and len(place) == 1:
            continue
        if len(place) != 2 or path.suffix != ".json" or not path.is_file():
            raise UserError(f"{path} is no record; records lie in {folder}/SUITE/MEASURE.json")
        if not re.match(SUITE_NAME, place[0]) or not re.match(MEASURE_NAME, path.stem):
            raise UserError(f"{str(path)!r} has a name that no suite or measure can have")
        found.setdefault(place[0], []).append(path)
    return found


def read_records(paths: Sequence[str | Path], evidence: Evidence) -> list[Record]:
    """Every record of a suite, checked against its evidence."""
    return list(judged_records(paths, evidence).records)


def judged_records(
    files: Sequence[str | Path], evidence: Evidence, spot_checks: int | None = None
) -> JudgedRecords:
    """Every record of a suite with the score that its readings give, which is the one it claims.

    Scores are computed for all records together, because that is much faster.

    Parameters
    ----------
    spot_checks : records, drawn anew each time, whose scores are all computed; of the others, slow scores
        that no board ranks by are taken as they are. All records unless given.
    """
    kind = kind_of(evidence.suite)
    paths = [Path(file) for file in files]
    records = [read_record(path) for path in paths]
    for record, path in zip(records, paths, strict=True):
        _refuse(path, _evidence_problems(record, evidence, kind))
    results = [result_of(record) for record in records]
    spared: frozenset[str] = frozenset()
    if spot_checks is not None:
        drawn = SystemRandom().sample(records, min(spot_checks, len(records)))
        spared = frozenset(record.name for record in records) - {record.name for record in drawn}
        results = [
            _spared(record, one, kind) if record.name in spared else one
            for record, one in zip(records, results, strict=True)
        ]
    judged = evidence.judge(results)
    for record, path, result in zip(records, paths, judged.results, strict=True):
        _refuse(path, _score_problems(record, result.score, kind))
    return JudgedRecords(records, judged, spared)


def _spared(record: Record, result: MeasureResult, kind: Kind) -> MeasureResult:
    """With those scores of its record that need not be computed again."""
    if record.sign_error is None:
        return result
    try:
        return replace(result, recorded=kind.slow_part(convert(record.sign_error, kind.score_type)))
    except WrongShape:  # said where scores are compared
        return result


def _refuse(path: Path, problems: Iterable[str]) -> None:
    for problem in problems:
        raise UserError(f"{path}: {problem}")


def read_record(path: str | Path, evidence: Evidence | None = None) -> Record:
    """The record in `path`: whole, unchanged since it was written, and true as far as can be recomputed.

    Without `evidence` its scores are taken as they are.
    """
    path = Path(path)
    if evidence is not None:
        return read_records([path], evidence)[0]
    values, text = _parsed(path)
    try:
        record = convert(values, Record)
    except WrongShape as problem:
        raise UserError(f"{path}: {problem}; `genbench schema` says what is expected") from None
    _refuse(path, _problems(record, values, text, path))
    return record


def _parsed(path: Path) -> tuple[RecordValues, str]:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise UserError(f"{path} has {size} bytes; a record has at most {LARGEST}")
        text = path.read_text(encoding="utf-8")
        values = json.loads(text, parse_constant=_refuse_constant)
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        said = " ".join(str(problem).split())[:200]
        raise UserError(f"{path} is not a JSON document: {said}") from None
    version = values.get("schema") if isinstance(values, dict) else None
    if version != SCHEMA:
        raise UserError(f"{path}: unknown record version {version!r}; this genbench reads version {SCHEMA}")
    return values, text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _problems(record: Record, values: RecordValues, text: str, path: Path) -> Iterator[str]:
    """One sentence each, the plainest first; what the types cannot say."""
    if (path.parent.name, path.stem) != (record.suite, record.name):
        yield f"it says that it is {record.name} on {record.suite}, which is not where it lies"
    if record.sha256 != body_hash(values):
        yield "its content was changed after it was written: its sha256 does not fit; run the measure again"
    if text != record_text(values):
        yield "it is not written as genbench writes it; run the measure again"
    for reading in record.readings:
        value = reading.value
        if (value is None) == (reading.status == "ok") or (value is not None and not math.isfinite(value)):
            yield f"its reading on {reading.subject} is {reading.status} with value {value}"
    if dict(Counter(str(reading.status) for reading in record.readings)) != record.statuses:
        yield "its status counts are not those of its readings"
    for name in ("seconds", "shared_seconds"):
        if not math.isclose(
            sum(getattr(reading, name) for reading in record.readings),
            getattr(record.cost, name),
            abs_tol=1e-9,
        ):
            yield f"its cost ({name}) is not that of its readings"


def _evidence_problems(record: Record, evidence: Evidence, kind: Kind) -> Iterator[str]:
    origin, pack = record.provenance, evidence.pack
    assert pack is not None
    if record.evidence != pack.hash:
        yield "it was scored against other evidence than the pack that ships; run the measure again"
        return
    if origin.suite_sha256 != file_hash(evidence.suite.path):
        yield f"it was made with another {record.suite}.toml; run the measure again"
    if record.subject_version != SUBJECT_VERSION:
        yield "it was made by an older genbench whose networks read differently; run the measure again"
    weights = kind.weight_hashes(pack, evidence.networks)
    if origin.networks != weights or origin.data_sha256 != pack.manifest.data_hash:
        yield "its networks or data are not those of the evidence pack"
    if sorted(reading.subject for reading in record.readings) != sorted(evidence.networks):
        yield "its readings are not one for each network of the suite"
        return
    yield from _measure_problems(record)


def _measure_problems(record: Record) -> Iterator[str]:
    entry = load_registry().measures.get(record.name)
    built_in = entry is not None and entry.source.kind == BUILT_IN
    if (record.plugin.kind == BUILT_IN) != built_in:
        yield (
            f"{record.name!r} is the name of a built-in measure; rename yours"
            if built_in
            else "it says that its measure is built in, but genbench has none of that name"
        )
    elif built_in and entry is not None and record.measure.version != entry.item.version:
        yield (
            f"it has version {record.measure.version} of a measure that now has version "
            f"{entry.item.version}; run it again"
        )


def _score_problems(record: Record, score: Score | None, kind: Kind) -> Iterator[str]:
    claimed, found = None, None if score is None else kind.recorded(score)
    if record.sign_error is not None:
        try:
            claimed = convert(record.sign_error, kind.score_type)
        except WrongShape as problem:
            yield f"sign_error.{problem}; `genbench schema` says what is expected"
            return
    named = [None if one is None else kind.comparable(one) for one in (claimed, found)]
    if not _agrees(named[0], named[1], kind.tolerances):
        yield "its scores are not what its readings give"


def _agrees(claimed: Any, found: Any, loose: Mapping[str, float], tolerance: float = _TOLERANCE) -> bool:
    """Whether two scores are the same but for rounding; `loose` says of which numbers that is more."""
    if claimed == found:  # at once, where nothing was rounded
        return True
    if isinstance(claimed, Mapping) and isinstance(found, Mapping):
        return claimed.keys() == found.keys() and all(
            _agrees(claimed[key], found[key], loose, loose.get(key, tolerance)) for key in claimed
        )
    if isinstance(claimed, (list, tuple)) and isinstance(found, (list, tuple)):
        pairs = zip(claimed, found, strict=False)
        return len(claimed) == len(found) and all(_agrees(*pair, loose) for pair in pairs)
    if isinstance(claimed, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(claimed, found, rel_tol=max(tolerance, 1e-9), abs_tol=tolerance)
    return False
