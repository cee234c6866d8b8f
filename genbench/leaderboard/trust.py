"""How far a row can be trusted: claimed, checked by the conformance kit, or recomputed.

What `genbench leaderboard verify` found out lies in `leaderboards/trust`:

    _conformance.json     measure to what the conformance kit said of its code; the same for all suites
    <suite>.json          measure to the networks on which its reading was recomputed

It counts only for the code and the readings that were looked at: others start as *claimed* again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.keys import canonical_json, text_hash
from genbench.records.record import Record

__all__ = [
    "CONFORMANCE",
    "LEVELS",
    "Trust",
    "code_hash",
    "read_trust",
    "trust_of",
    "verifiable",
    "write_trust",
]

CONFORMANCE = "_conformance"
"""In place of a suite's name, which begins with a letter or a digit."""

LEVELS = ("claimed", "checked", "reproduced")


@dataclass(frozen=True)
class Trust:
    """What is known about one record."""

    level: str
    reproduced: list[str] = field(default_factory=list)
    """Networks on which the reading was recomputed and found equal."""
    findings: dict[str, str] = field(default_factory=dict)
    """Invariance to "unchanged" or "changes", where the conformance kit looked."""


def read_trust(folder: Path, suite: str) -> dict[str, Any]:
    """Measure to entry of a suite's file, or of `CONFORMANCE`; empty where nothing was verified yet."""
    path = folder / f"{suite}.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        valid = isinstance(found, dict) and all(isinstance(e.get("of"), str) for e in found.values())
    except (OSError, ValueError, AttributeError):
        valid = False
    if not valid:
        raise UserError(
            f"{path} is not what `genbench leaderboard verify` writes; remove it and verify again"
        )
    return dict(found)


def write_trust(folder: Path, suite: str, entries: Mapping[str, Any]) -> None:
    """Replace the file of one suite, or that of `CONFORMANCE`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False)
    write_atomically(folder / f"{suite}.json", text + "\n")


def verifiable(record: Record) -> str:
    """Hash of what can be verified: the measure's code and its readings; not what they cost, or when."""
    readings = [[r.subject, r.key, str(r.status), r.value] for r in record.readings]
    return text_hash(canonical_json([record.measure.version, record.plugin.sha256, readings]))


def code_hash(record: Record) -> str:
    """Hash of what the conformance kit looks at: the measure's code."""
    return text_hash(canonical_json([record.measure.version, record.plugin.sha256]))


def trust_of(record: Record, entries: Mapping[str, Any], conformance: Mapping[str, Any]) -> Trust:
    """The trust in one record, from the files of its suite and of the conformance kit."""
    name = record.name
    entry, checked = entries.get(name, {}), conformance.get(name, {})
    reproduced = sorted(entry.get("reproduced", [])) if entry.get("of") == verifiable(record) else []
    if checked.get("of") != code_hash(record):
        checked = {}
    level = "reproduced" if reproduced else "checked" if checked.get("passed") else "claimed"
    return Trust(level, reproduced, dict(checked.get("findings", {})))
