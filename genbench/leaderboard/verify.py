"""What is known about records beyond what they claim: readings recomputed, conformance checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from msgspec import structs

from genbench._version import __version__
from genbench.challenge.execute import Challenge
from genbench.engine.guard import Limits
from genbench.errors import UserError
from genbench.leaderboard.recompute import Agreement, compare, draw, recompute
from genbench.leaderboard.trust import (
    CHALLENGE,
    CONFORMANCE,
    Challenged,
    Checked,
    Conformance,
    Recomputed,
    code_hash,
    read_challenged,
    read_checked,
    read_recomputed,
    verifiable,
    write_trust,
)
from genbench.plugin.registry import load_registry
from genbench.records.record import Record
from genbench.records.validate import judged_records, record_files
from genbench.runs.execute import RunOptions
from genbench.suites.evidence_packs import shipped_evidence

__all__ = ["check_conformance", "remember", "remember_challenge", "suite_records", "verify_sample"]

_INVARIANCE = "same function, "
"""How the conformance kit names what should leave a measure unchanged."""


def suite_records(folder: Path, suite: str, spot_checks: int | None = None) -> list[Record]:
    """Every record of a suite, validated (`judged_records`)."""
    paths = record_files(folder).get(suite, [])
    if not paths:
        raise UserError(f"{folder} holds no records of suite {suite!r}")
    return list(judged_records(paths, shipped_evidence(suite), spot_checks).records)


def verify_sample(
    records: Sequence[Record],
    sample: int,
    *,
    seed: int,
    slowest: float = math.inf,
    quiet: bool = False,
    **how: Unpack[RunOptions],
) -> list[Agreement]:
    """Recompute random readings in an empty store and compare them."""
    chosen = draw(records, sample, seed, slowest)
    if not chosen:
        raise UserError("there is no reading of an installed measure to recompute")
    found = recompute(chosen, records[0].suite, quiet=quiet, **how)
    return [one for record in records if record.name in chosen for one in compare(record, found)]


def check_conformance(measure: str, limits: Limits) -> Conformance:
    """What the conformance kit says of one measure: whether it passed, and what leaves it unchanged."""
    from genbench.conformance import run_checks

    report = run_checks(load_registry().get("measures", measure).source, measure, limits)
    return Conformance(
        passed=not report.failed and report.ran > 0,
        checks=report.ran,
        genbench=__version__,
        findings={
            result.name.removeprefix(_INVARIANCE): "unchanged"
            if result.detail.startswith("unchanged")
            else "changes"
            for result in report.results
            if result.name.startswith(_INVARIANCE) and result.outcome == "finding"
        },
    )


def remember_challenge(folder: Path, record: Record, found: Challenge) -> None:
    """Keep what came of a challenge of the code that a record was made with."""
    entries = read_challenged(folder, record.suite)
    entries[record.name] = Challenged(of=code_hash(record), found=found)
    write_trust(folder, f"{CHALLENGE}{record.suite}", entries)


def remember(
    folder: Path,
    records: Sequence[Record],
    agreements: Sequence[Agreement] = (),
    checked: Mapping[str, Conformance] | None = None,
) -> None:
    """Add what was found out to the files of trust; entries of other code or readings are forgotten."""
    suite = records[0].suite
    before, conformance = read_recomputed(folder, suite), read_checked(folder)
    entries = {}
    for record in records:
        name = record.name
        old = before.get(name)
        known = set(old.reproduced) if old and old.of == verifiable(record) else set()
        mine = [one for one in agreements if one.measure == name]
        good = {one.subject for one in mine if one.agrees}
        # A reading that could not be reproduced takes the mark from the whole row.
        known = known | good if len(good) == len(mine) else set()
        if known:
            # What was marked before there was a sandbox keeps its mark until it is looked at again.
            sealed = None if old is None else old.sealed
            if mine:
                sealed = record.sealed and all(one.sealed for one in mine)
            entries[name] = Recomputed(of=verifiable(record), reproduced=sorted(known), sealed=sealed)
        if checked and name in checked:
            conformance[name] = Checked(**structs.asdict(checked[name]), of=code_hash(record))
    write_trust(folder, suite, entries)
    write_trust(folder, CONFORMANCE, conformance)
