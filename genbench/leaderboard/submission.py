"""Takes the records of a submitted plugin onto the boards, without running any of its code.

A submission is a folder that a job without any rights has filled::

    records/<suite>/<measure>.json     what `genbench run --records` wrote
    audits/<measure>.json              what `genbench audit --records` wrote, where it did
    checks.json                        measure to what the conformance kit said

Nothing in it is believed: records are validated against the evidence that ships, names and sizes are checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from genbench.audit.records import read_audits
from genbench.audit.report import MeasureAudit
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.leaderboard.build import Folders
from genbench.leaderboard.trust import Conformance
from genbench.leaderboard.verify import remember, suite_records
from genbench.records.record import Record
from genbench.records.validate import LARGEST, read_record, record_files
from genbench.suites.evidence_packs import shipped_evidence

__all__ = ["CHECKS", "accept"]

CHECKS = "checks.json"
_MOST = 50
"""Records of one submission."""


def accept(submission: Path, folders: Folders) -> list[str]:
    """Add the records of a submission to those of the boards; returns "suite/measure" of each."""
    found = record_files(submission / "records")
    if sum(map(len, found.values())) > _MOST:
        raise UserError(f"{submission} has more than {_MOST} records; submit them in parts")
    checks = _checks(submission / CHECKS)
    # All are read before one is written: a submission is taken whole or not at all.
    records = {
        path: read_record(path, shipped_evidence(suite)) for suite, paths in found.items() for path in paths
    }
    audits = read_audits(submission / "audits")
    for record in records.values():
        _require_own_name(record, folders.records)
    _require_own_audits(audits, list(records.values()))
    for source, record in records.items():
        target = folders.records / record.suite / f"{record.name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, source.read_text(encoding="utf-8"))
    for name in audits:
        folders.audits.mkdir(parents=True, exist_ok=True)
        text = (submission / "audits" / f"{name}.json").read_text(encoding="utf-8")
        write_atomically(folders.audits / f"{name}.json", text)
    for suite in found:
        names = {record.name for record in records.values() if record.suite == suite}
        passed = {name: entry for name, entry in checks.items() if name in names}
        # Those that were there are validated when boards are built, the new ones were above.
        remember(folders.trust, suite_records(folders.records, suite, spot_checks=0), checked=passed)
    return [f"{record.suite}/{record.name}" for record in records.values()]


def _require_own_name(record: Record, folder: Path) -> None:
    name, plugin = record.name, record.plugin
    if plugin.kind != "package":
        raise UserError(
            f"{name} is offered by no package; submit a folder plugins/NAME with a pyproject.toml"
        )
    path = folder / record.suite / f"{name}.json"
    if path.exists():
        owner = read_record(path).plugin.distribution
        if owner != plugin.distribution:
            raise UserError(f"{name!r} is on the board already, by {owner}; rename yours")


def _require_own_audits(audits: Mapping[str, MeasureAudit], records: Sequence[Record]) -> None:
    """An audit is of a measure that the submission has records of, as the same package offers it."""
    offered = {(record.name, record.plugin.distribution) for record in records}
    for name, audit in audits.items():
        if (
            audit.readings.source.kind != "package"
            or (name, audit.readings.source.distribution) not in offered
        ):
            raise UserError(f"there is an audit of {name!r}, and no record of it by the same package")


def _checks(path: Path) -> dict[str, Conformance]:
    """What the conformance kit said, with nothing in it that a board could not show."""
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} is larger than any report of the conformance kit")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Conformance])
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.MsgspecError, RecursionError):
        raise UserError(f"{path} is not a report of the conformance kit") from None
