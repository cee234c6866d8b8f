"""How far a row can be trusted: claimed, checked by the conformance kit, or recomputed.

What `genbench leaderboard verify` found out lies in `leaderboards/trust`:

    _conformance.json     measure to what the conformance kit said of its code; the same for all suites
    <suite>.json          measure to the networks on which its reading was recomputed
    _challenge-<suite>.json   measure to what came of a challenge on fresh networks

It counts only for the code and the readings that were looked at: others start as *claimed* again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from genbench.challenge.execute import Challenge
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.keys import canonical_json, text_hash
from genbench.packs.record_types import Count, RecordPart, Sha256, Text
from genbench.records.record import Record

__all__ = [
    "CHALLENGE",
    "CONFORMANCE",
    "LEVELS",
    "Challenged",
    "Checked",
    "Conformance",
    "Recomputed",
    "Trust",
    "code_hash",
    "read_challenged",
    "read_checked",
    "read_recomputed",
    "trust_of",
    "verifiable",
    "write_trust",
]

CONFORMANCE = "_conformance"
"""In place of a suite's name, which begins with a letter or a digit."""

CHALLENGE = "_challenge-"
"""Before a suite's name."""

LEVELS = ("claimed", "checked", "reproduced", "suspect")


class Recomputed(RecordPart, frozen=True, omit_defaults=True):
    """Of a record: on which networks it was recomputed."""

    of: Sha256
    """Hash of what was verified."""
    reproduced: list[str]
    sealed: bool | None = None
    """Whether the readings, recorded and recomputed, were taken in a sandbox; None in files from before there
    was one, whose marks stay until the row is verified again."""


class Conformance(RecordPart, frozen=True):
    """What the conformance kit said of a measure; a board shows it, whoever sent it."""

    passed: bool
    checks: Count
    genbench: Text
    findings: Annotated[dict[Text, Literal["unchanged", "changes"]], Meta(max_length=50)]
    """Invariance to what became of the reading."""


class Checked(Conformance, frozen=True):
    """The same, with the hash of the code that it was said of."""

    of: Sha256


class Challenged(RecordPart, frozen=True):
    """What came of a challenge, with the hash of the code that was challenged."""

    of: Sha256
    found: Challenge


@dataclass(frozen=True)
class Trust:
    """What is known about one record."""

    level: str
    reproduced: list[str] = field(default_factory=list)
    """Networks on which the reading was recomputed and found equal."""
    findings: dict[str, str] = field(default_factory=dict)
    """Invariance to "unchanged" or "changes", where the conformance kit looked."""
    challenge: Challenge | None = None


def read_recomputed(folder: Path, suite: str) -> dict[str, Recomputed]:
    """Measure to what was recomputed of it; empty where nothing was verified yet."""
    return _read(folder / f"{suite}.json", Recomputed)


def read_checked(folder: Path) -> dict[str, Checked]:
    """Measure to what the conformance kit said of it."""
    return _read(folder / f"{CONFORMANCE}.json", Checked)


def read_challenged(folder: Path, suite: str) -> dict[str, Challenged]:
    """Measure to what came of its challenge."""
    return _read(folder / f"{CHALLENGE}{suite}.json", Challenged)


Entry = TypeVar("Entry", Recomputed, Checked, Challenged)


def _read(path: Path, entry: type[Entry]) -> dict[str, Entry]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, entry])  # type: ignore[valid-type]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UserError(
            f"{path} is not what `genbench leaderboard verify` writes; remove it and verify again"
        ) from None


def write_trust(folder: Path, name: str, entries: Mapping[str, Entry]) -> None:
    """Replace the file of one suite, that of `CONFORMANCE`, or that of `CHALLENGE` and a suite."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(msgspec.to_builtins(entries), indent=1, sort_keys=True, ensure_ascii=False)
    write_atomically(folder / f"{name}.json", text + "\n")


def verifiable(record: Record) -> str:
    """Hash of what can be verified: the measure's code and its readings; not what they cost, or when."""
    readings = [[r.subject, str(r.status), r.value] for r in record.readings]
    return text_hash(canonical_json([record.measure.version, record.plugin.sha256, record.keys, readings]))


def code_hash(record: Record) -> str:
    """Hash of what the conformance kit looks at: the measure's code."""
    return text_hash(canonical_json([record.measure.version, record.plugin.sha256]))


def trust_of(
    record: Record,
    recomputed: Mapping[str, Recomputed],
    conformance: Mapping[str, Checked],
    challenged: Mapping[str, Challenged] | None = None,
) -> Trust:
    """The trust in one record, from the files of its suite and of the conformance kit."""
    entry, checked = recomputed.get(record.name), conformance.get(record.name)
    reproduced = sorted(entry.reproduced) if entry and entry.of == verifiable(record) else []
    if checked is not None and checked.of != code_hash(record):
        checked = None
    if entry is not None and entry.sealed is False:
        reproduced = []  # readings that could have looked at the evidence prove nothing
    level = "reproduced" if reproduced else "checked" if checked and checked.passed else "claimed"
    asked = (challenged or {}).get(record.name)
    challenge = asked.found if asked is not None and asked.of == code_hash(record) else None
    if challenge is not None and not challenge.passed:
        level = "suspect"
    return Trust(level, reproduced, dict(checked.findings) if checked else {}, challenge)
