"""Reads result records that anyone may have sent, and refuses those that are not what they say."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.leaderboard.schema import MEASURE_NAME, SCHEMA, SUITE_NAME, record_schema
from genbench.records import body_hash, record_text
from genbench.registry import load_registry

if TYPE_CHECKING:
    from genbench.leaderboard.evidence import SuiteEvidence

__all__ = ["LARGEST", "read_record", "read_records", "record_files"]

LARGEST = 2**20
"""Bytes of a record; real ones have up to a tenth of it."""
_TOLERANCE = 1e-9
"""Of a recomputed sign-error: a mean of halves over pairs."""
_INTERVAL_TOLERANCE = 5e-3
"""Of the ends of its interval and of sureness: BLAS may turn a tie in a single resample."""


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
    return [read_record(path, evidence) for path in paths]


def read_record(path: Path, evidence: SuiteEvidence | None = None) -> dict[str, Any]:
    """The record in `path`: whole, unchanged since it was written, and true as far as can be recomputed.

    Without `evidence` its scores are taken as they are.
    """
    record = _parsed(path)
    for problem in _problems(record, path, evidence):
        raise UserError(f"{path}: {problem}")
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


def _problems(record: Mapping[str, Any], path: Path, evidence: SuiteEvidence | None) -> Iterator[str]:
    """One sentence each, the plainest first."""
    name = record["measure"]["name"]
    if (path.parent.name, path.stem) != (record["suite"], name):
        yield f"it says that it is {name} on {record['suite']}, which is not where it lies"
    if record["sha256"] != body_hash(record):
        yield "its content was changed after it was written: its sha256 does not fit; run the measure again"
    if path.read_text(encoding="utf-8") != record_text(record):
        yield "it is not written as genbench writes it; run the measure again"
    yield from _own_problems(record)
    if evidence is not None:
        yield from _evidence_problems(record, evidence)


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
    from genbench.runs import SUBJECT_VERSION

    origin = record["provenance"]
    if record["evidence"] != evidence.pack.hash:
        yield "it was scored against other evidence than the pack that ships; run the measure again"
        return
    if origin["suite_sha256"] != file_hash(evidence.suite.path):
        yield f"it was made with another {record['suite']}.toml; run the measure again"
    if record["subject_version"] != SUBJECT_VERSION:
        yield "it was made by an older genbench whose networks read differently; run the measure again"
    networks = {
        name: evidence.pack.manifest["networks"][name]["files"]["final.safetensors"]["sha256"]
        for name in evidence.suite.backbones
    }
    if origin["networks"] != networks or origin["data_sha256"] != evidence.pack.manifest["data_hash"]:
        yield "its networks or data are not those of the evidence pack"
    if sorted(reading["subject"] for reading in record["readings"]) != sorted(networks):
        yield "its readings are not one for each network of the suite"
        return
    yield from _measure_problems(record)
    score = evidence.score(record)
    if not _agrees(record["sign_error"], None if score is None else score.record()):
        yield "its scores are not what its readings give"


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
        loose = ("low", "high", "certainty")
        return claimed.keys() == found.keys() and all(
            _agrees(claimed[key], found[key], _INTERVAL_TOLERANCE if key in loose else tolerance)
            for key in claimed
        )
    if isinstance(claimed, list) and isinstance(found, list):
        return len(claimed) == len(found) and all(map(_agrees, claimed, found))
    if isinstance(claimed, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(claimed, found, rel_tol=max(tolerance, 1e-9), abs_tol=tolerance)
    return bool(claimed == found)
