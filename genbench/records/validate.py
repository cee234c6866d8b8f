"""Reads result records that anyone may have sent, and refuses those that are not what they say."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.plugin.registry import load_registry
from genbench.records.schema import MEASURE_NAME, SCHEMA, SUITE_NAME, record_schema
from genbench.records.write import body_hash, record_text

if TYPE_CHECKING:
    from genbench.suites.evidence_old import SuiteEvidence

__all__ = ["LARGEST", "judged_records", "read_record", "read_records", "record_files"]

LARGEST = 2**20
"""Bytes of a record; real ones have up to a tenth of it."""
_TOLERANCE = 1e-9
"""Of a recomputed sign-error: a mean of halves over pairs."""
_INTERVAL_TOLERANCE = 5e-3
"""Of the ends of its interval and of sureness: BLAS may turn a tie in a single resample."""


_SOLVER_TOLERANCE = 1e-6
"""Of an optimum that an iteration comes near to."""


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


def read_records(paths: list[Path], evidence: SuiteEvidence) -> list[dict[str, Any]]:
    """Every record of a suite, checked against its evidence."""
    return [record for record, _ in judged_records(paths, evidence)]


def judged_records(paths: list[Path], evidence: SuiteEvidence) -> list[tuple[dict[str, Any], Any]]:
    """Every record of a suite with the score that its readings give, which is the one it claims.

    Scores are computed for all records together, because that is much faster.
    """
    records = [read_record(path) for path in paths]
    for record, path in zip(records, paths, strict=True):
        _refuse(path, _evidence_problems(record, evidence))
    scores = evidence.judge(records)
    for record, path, score in zip(records, paths, scores, strict=True):
        _refuse(path, _score_problems(record, score))
    return list(zip(records, scores, strict=True))


def _refuse(path: Path, problems: Iterable[str]) -> None:
    for problem in problems:
        raise UserError(f"{path}: {problem}")


def read_record(path: Path, evidence: SuiteEvidence | None = None) -> dict[str, Any]:
    """The record in `path`: whole, unchanged since it was written, and true as far as can be recomputed.

    Without `evidence` its scores are taken as they are.
    """
    if evidence is not None:
        return read_records([path], evidence)[0]
    record = _parsed(path)
    _refuse(path, _problems(record, path))
    return record


def _parsed(path: Path) -> dict[str, Any]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise UserError(f"{path} has {size} bytes; a record has at most {LARGEST}")
        record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not a JSON document: {_short(str(problem))}") from None
    version = record.get("schema") if isinstance(record, dict) else None
    if version != SCHEMA:
        raise UserError(f"{path}: unknown record version {version!r}; this genbench reads version {SCHEMA}")
    error = best_match(Draft202012Validator(record_schema()).iter_errors(record))
    if error is not None:
        place = ".".join(map(str, error.absolute_path)) or "the record"
        raise UserError(f"{path}: {place}: {_short(error.message)}; `genbench schema` says what is expected")
    found: dict[str, Any] = record
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:120]} … {text[-70:]}"


def _problems(record: Mapping[str, Any], path: Path) -> Iterator[str]:
    """One sentence each, the plainest first."""
    name = record["measure"]["name"]
    if (path.parent.name, path.stem) != (record["suite"], name):
        yield f"it says that it is {name} on {record['suite']}, which is not where it lies"
    if record["sha256"] != body_hash(record):
        yield "its content was changed after it was written: its sha256 does not fit; run the measure again"
    if path.read_text(encoding="utf-8") != record_text(record):
        yield "it is not written as genbench writes it; run the measure again"
    yield from _own_problems(record)


def _own_problems(record: Mapping[str, Any]) -> Iterator[str]:
    readings = record["readings"]
    for reading in readings:
        value = reading["value"]
        if (value is None) == (reading["status"] == "ok") or (value is not None and not math.isfinite(value)):
            yield f"its reading on {reading['subject']} is {reading['status']} with value {value}"
    if dict(Counter(reading["status"] for reading in readings)) != record["statuses"]:
        yield "its status counts are not those of its readings"
    for name in ("seconds", "shared_seconds"):
        if not math.isclose(sum(r[name] for r in readings), record["cost"][name], abs_tol=1e-9):
            yield f"its cost ({name}) is not that of its readings"


def _evidence_problems(record: Mapping[str, Any], evidence: SuiteEvidence) -> Iterator[str]:
    from genbench.subject.version import SUBJECT_VERSION

    origin = record["provenance"]
    if record["evidence"] != evidence.pack.hash:
        yield "it was scored against other evidence than the pack that ships; run the measure again"
        return
    if origin["suite_sha256"] != file_hash(evidence.suite.path):
        yield f"it was made with another {record['suite']}.toml; run the measure again"
    if record["subject_version"] != SUBJECT_VERSION:
        yield "it was made by an older genbench whose networks read differently; run the measure again"
    if origin["networks"] != evidence.networks or origin["data_sha256"] != evidence.data_sha256:
        yield "its networks or data are not those of the evidence pack"
    if sorted(reading["subject"] for reading in record["readings"]) != sorted(evidence.subjects):
        yield "its readings are not one for each network of the suite"
        return
    yield from _measure_problems(record)


def _score_problems(record: Mapping[str, Any], score: Any) -> Iterator[str]:
    if not _agrees(_by_name(record["sign_error"]), _by_name(None if score is None else score.record())):
        yield "its scores are not what its readings give"


def _by_name(score: Mapping[str, Any] | None) -> Any:
    """A score in which every number has a name; that of a population lists them without."""
    if score is None or "scores" not in score:
        return score
    from genbench.scoring.population import FIELDS

    numbers = [dict(zip(FIELDS, row, strict=False)) for row in score["scores"]]
    return {
        **score,
        "scores": {"/".join(map(str, row[:4])): n for row, n in zip(score["scores"], numbers, strict=True)},
        # Which of two equally bad environments comes first is a matter of the last bit.
        "worst": sorted(one["sign_error"] for one in score["worst"]),
    }


def _measure_problems(record: Mapping[str, Any]) -> Iterator[str]:
    entry = load_registry().measures.get(record["measure"]["name"])
    built_in = entry is not None and entry.source.kind == "built-in"
    if (record["plugin"]["kind"] == "built-in") != built_in:
        yield (
            f"{record['measure']['name']!r} is the name of a built-in measure; rename yours"
            if built_in
            else "it says that its measure is built in, but genbench has none of that name"
        )
    elif built_in and entry is not None and record["measure"]["version"] != entry.item.version:
        yield (
            f"it has version {record['measure']['version']} of a measure that now has version "
            f"{entry.item.version}; run it again"
        )


def _agrees(claimed: Any, found: Any, tolerance: float = _TOLERANCE) -> bool:
    """Whether two scores are the same but for rounding."""
    if isinstance(claimed, Mapping) and isinstance(found, Mapping):
        loose = dict.fromkeys(("low", "high", "certainty"), _INTERVAL_TOLERANCE)
        if claimed.get("score") == "affine_oracle":
            loose |= {"value": _SOLVER_TOLERANCE}
        return claimed.keys() == found.keys() and all(
            _agrees(claimed[key], found[key], loose.get(key, tolerance)) for key in claimed
        )
    if isinstance(claimed, list) and isinstance(found, list):
        return len(claimed) == len(found) and all(map(_agrees, claimed, found))
    if isinstance(claimed, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(claimed, found, rel_tol=max(tolerance, 1e-9), abs_tol=tolerance)
    return bool(claimed == found)
