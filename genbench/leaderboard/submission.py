"""Takes a plugin of the tree onto the boards: its readings are computed anew, from its source, in a sandbox.

Nothing that comes with it is believed. A submission may hold records that `genbench run --records` wrote::

    records/<suite>/<measure>.json

They spare time where a measure is expensive: of such a one a random third of the networks is read again, and
every value must agree; of all others each reading is computed here, and the record is written here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from msgspec import to_builtins

from genbench.audit.plan import plan_audit, shipped_pack
from genbench.audit.records import audit_evidence, write_audits
from genbench.audit.report import MeasureAudit
from genbench.audit.setups import STRESSORS
from genbench.audit.whole import audit_measures
from genbench.challenge.execute import Challenge, challenge
from genbench.engine.cells import Outcome
from genbench.engine.guard import Limits
from genbench.engine.sandbox import SEALED
from genbench.engine.store import write_atomically
from genbench.errors import UserError
from genbench.leaderboard.build import Folders
from genbench.leaderboard.recompute import Agreement, compare, recompute
from genbench.leaderboard.tree import PluginTree, installed, read_tree
from genbench.leaderboard.trust import Conformance
from genbench.leaderboard.verify import check_conformance, remember, remember_challenge, suite_records
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Entry, load_registry
from genbench.records.provenance import plugin_record
from genbench.records.record import Record
from genbench.records.results import about
from genbench.records.validate import read_record, read_records, record_files
from genbench.records.write import keys_hash, record_text, write_records
from genbench.report.progress import cell_progress, make_progress
from genbench.runs.execute import RunOptions, execute, workers_of
from genbench.runs.plan import Plan, make_plan
from genbench.sealing.seal import missing
from genbench.suites.evidence import Evidence
from genbench.suites.evidence_packs import shipped_evidence

__all__ = ["CHEAP_SECONDS", "accept", "pending"]

CHEAP_SECONDS = 900.0
"""Of all readings of a measure on a suite: what is computed anew without looking at any record."""
_SHARE = 1 / 3
"""Of the networks on which an expensive measure is read again."""
_CHECK_SECONDS = 60.0
_MOST = 50
"""Records of one submission."""


@dataclass
class _Row:
    """What will stand on one board of one measure."""

    record: str
    """Text of the record."""
    agreements: list[Agreement] = field(default_factory=list)


def accept(
    plugin: Path,
    folders: Folders,
    *,
    suites: Sequence[str] = (),
    submission: Path | None = None,
    seed: int | None = None,
    challenged: Sequence[str] = (),
    audited: bool = False,
    quiet: bool = False,
    **how: Unpack[RunOptions],
) -> list[str]:
    """Add rows of all measures of the plugin in a folder; returns "suite/measure" of each.

    Parameters
    ----------
    suites : those with a board unless given.
    submission : a folder with records.
    seed : of the networks on which expensive measures are read again; drawn unless given.
    challenged : suites on fresh networks of which they are challenged.
    audited : whether they are audited too, on the networks that ship for that.
    """
    if (lacking := missing()) or not how["limits"].sandbox:
        raise UserError(f"readings for a board are taken in a sandbox: {lacking or 'drop --no-sandbox'}")
    tree = read_tree(plugin)
    files = {} if submission is None else _record_files(submission)
    claimed = {suite: {path.stem: read_record(path) for path in paths} for suite, paths in files.items()}
    with installed(tree):
        entries = _measures(tree)
        for suite, records in claimed.items():
            _require_bound(tree, entries, records, shipped_evidence(suite))
            read_records(files[suite], shipped_evidence(suite))
        suites = suites or sorted({*record_files(folders.records), *claimed})
        for entry in entries.values():
            _require_free(tree, entry, folders.records, suites)
        kit = {name: _conformance(name, how["limits"]) for name in entries}
        draw = random.SystemRandom() if seed is None else random.Random(seed)
        rows = {
            suite: _rows(tree, list(entries.values()), suite, claimed.get(suite, {}), draw, quiet, how)
            for suite in suites
        }
        challenges = {
            suite: _challenges(entries, suite, draw.randrange(2**31), quiet, how) for suite in challenged
        }
        audits = _audits(list(entries.values()), quiet, how) if audited else []
    written = _write(rows, kit, challenges, folders)
    if audits:
        write_audits(audits, folders.audits, audit_evidence().pack)
    return written


def _challenges(
    entries: Mapping[str, Entry[Measure]], suite: str, seed: int, quiet: bool, how: RunOptions
) -> dict[str, Challenge]:
    """Measure to what came of it, all on the same fresh networks."""
    with TemporaryDirectory(prefix="genbench-challenge-") as store, cell_progress(quiet=quiet) as progress:
        return {
            name: challenge(entry, suite, Path(store), progress, seed=seed, **how)
            for name, entry in entries.items()
        }


def _audits(entries: Sequence[Entry[Measure]], quiet: bool, how: RunOptions) -> list[MeasureAudit]:
    plan = plan_audit(list(STRESSORS), shipped_pack())
    with TemporaryDirectory(prefix="genbench-audit-") as store, cell_progress(quiet=quiet) as progress:
        found = audit_measures(
            plan, list(STRESSORS), entries, Path(store), progress, card_seconds=_CHECK_SECONDS, **how
        )
    for one in found:
        for network, why in one.readings.failed.items():
            raise UserError(f"{one.readings.measure.name!r} fails on {network} of the audit: {why}")
    return found


def _record_files(submission: Path) -> dict[str, list[Path]]:
    found = record_files(submission / "records")
    if sum(map(len, found.values())) > _MOST:
        raise UserError(f"{submission} has more than {_MOST} records; submit them in parts")
    return found


def _measures(tree: PluginTree) -> dict[str, Entry[Measure]]:
    """What the plugin offers, asked of a sealed process, as far as its source bears it out."""
    registry = load_registry()
    reports = [one for one in registry.plugins if one.source.distribution == tree.distribution]
    for report in reports:
        for problem in report.problems:
            raise UserError(f"{tree} is broken: {problem}")
        for kind in report.offers.keys() - {"measures"}:
            raise UserError(f"{tree} offers {kind} too; a submission offers measures alone")
    found = {
        name: entry
        for name, entry in registry.measures.items()
        if entry.source.distribution == tree.distribution
    }
    if not found:
        raise UserError(f"{tree} offers no measure")
    for name, entry in found.items():
        module = entry.item.function.__module__
        if module.partition(".")[0] != tree.package.name:
            raise UserError(f"{name!r} says that it is defined in {module!r}, which is not in {tree}")
        if name not in tree.names:
            raise UserError(f"{tree} offers {name!r}, a name that is nowhere in its source; write it there")
        if plugin_record(entry).sha256 != tree.sha256:
            raise UserError(f"what was imported as {name!r} is not the source in {tree}")
    return found


def _require_bound(
    tree: PluginTree, entries: Mapping[str, Entry[Measure]], records: Mapping[str, Record], evidence: Evidence
) -> None:
    """Refuse records that are not of this plugin, this code, this version or this evidence."""
    for name, record in records.items():
        own, theirs = entries.get(name), record.plugin
        if theirs.kind != "package":
            raise UserError(f"{name} is offered by no package; submit a folder plugins/genbench-NAME")
        if own is None or theirs.distribution != tree.distribution:
            raise UserError(
                f"the record of {name!r} is one of {theirs.distribution}; {tree} can write rows of its own "
                f"measures alone: {', '.join(sorted(entries))}"
            )
        for problem in _problems(record, own, tree, evidence):
            raise UserError(f"the record of {name!r} on {record.suite} {problem}; run the measure again")


def _problems(record: Record, own: Entry[Measure], tree: PluginTree, evidence: Evidence) -> Iterator[str]:
    """Ends of sentences, the plainest first."""
    if record.measure.version != own.item.version:
        yield f"has version {record.measure.version}, and {tree} has version {own.item.version}"
    if record.plugin.sha256 != tree.sha256:
        yield f"was made from other source code than that in {tree}"
    if record.measure != about(own.item.info) or record.plugin != plugin_record(own):
        yield f"describes its measure in other words than {tree} does"
    pack = evidence.pack
    assert pack is not None
    if record.evidence != pack.hash:
        yield f"was made with other evidence than {pack.version}, which ships"
    plan = make_plan(evidence.suite, [own], pack=pack)
    if record.keys != keys_hash(plan, own.item.name):
        yield "has keys that this source and this evidence do not give: nobody has run it"
    if not record.sealed:
        yield "has readings that were not taken in a sandbox"


def _require_free(tree: PluginTree, entry: Entry[Measure], folder: Path, suites: Sequence[str]) -> None:
    """Refuse a name that somebody else has, and a version that the board is past."""
    name, version = entry.item.name, entry.item.version
    if entry.source.kind == BUILT_IN:
        raise UserError(f"{name!r} is the name of a built-in measure; rename yours")
    for suite in suites:
        path = folder / suite / f"{name}.json"
        if not path.exists():
            continue
        there = read_record(path)
        if there.plugin.distribution != tree.distribution:
            raise UserError(f"{name!r} is on the board already, by {there.plugin.distribution}; rename yours")
        older = version.isdecimal() and there.measure.version.isdecimal()
        if older and int(version) < int(there.measure.version):
            raise UserError(
                f"the board has version {there.measure.version} of {name!r}, and {tree} has version "
                f"{version}; a row is followed by a newer version"
            )


def _conformance(name: str, limits: Limits) -> Conformance:
    found = check_conformance(name, Limits(_CHECK_SECONDS, limits.memory))
    if not found.passed:
        raise UserError(f"{name!r} breaks a promise of the contract; `genbench check {name}` says which")
    return found


def _rows(
    tree: PluginTree,
    entries: Sequence[Entry[Measure]],
    suite: str,
    claimed: Mapping[str, Record],
    draw: random.Random,
    quiet: bool,
    how: RunOptions,
) -> dict[str, _Row]:
    """Measure to its row: computed here, or claimed and found true on networks that nobody could foresee."""
    evidence = shipped_evidence(suite)
    costly = {
        name: record
        for name, record in claimed.items()
        if record.cost.seconds + record.cost.shared_seconds > CHEAP_SECONDS
    }
    cheap = [entry for entry in entries if entry.item.name not in costly]
    rows = {}
    if cheap:
        plan = make_plan(evidence.suite, cheap, pack=evidence.pack)
        texts, outcomes = _computed(plan, quiet, how)
        for name, text in texts.items():
            agreements = compare(claimed[name], outcomes) if name in claimed else []
            rows[name] = _Row(text, agreements)
    chosen = {name: _third(evidence.networks, draw) for name in sorted(costly)}
    if chosen:
        outcomes = recompute(chosen, suite, quiet=quiet, **how)
        for name, record in costly.items():
            _require_sealed(name, outcomes)
            rows[name] = _Row(record_text(to_builtins(record)), compare(record, outcomes))
    for row in rows.values():
        for one in row.agreements:
            if not one.agrees:
                raise UserError(
                    f"the record of {one.measure!r} on {suite} says {one.recorded} "
                    f"({one.recorded_status}) of {one.subject}, and the source in {tree} gives {one.found} "
                    f"({one.status}): its readings are not that measure's"
                )
    return rows


def _computed(
    plan: Plan, quiet: bool, how: RunOptions
) -> tuple[dict[str, str], dict[tuple[str, str], Outcome]]:
    """Text of the record of each measure, and what all readings came to."""
    with TemporaryDirectory(prefix="genbench-accept-") as name, ExitStack() as stack:
        folder = Path(name)
        progress = stack.enter_context(
            make_progress(plan, folder, jobs=workers_of(plan, folder, how), quiet=quiet)
        )
        result = execute(plan, folder / "store", progress, **how)
        outcomes = {
            (one.name, subject): outcome for one in result.asked for subject, outcome in one.outcomes.items()
        }
        for one in result.asked:
            _require_sealed(one.name, outcomes)
        write_records(result, folder / "records")
        texts = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "records").rglob("*.json")}
    return texts, outcomes


def _require_sealed(measure: str, outcomes: Mapping[tuple[str, str], Outcome]) -> None:
    for (name, subject), outcome in outcomes.items():
        if name == measure and outcome.cost.sandbox != SEALED:
            raise UserError(f"the reading of {measure!r} on {subject} could not be taken in a sandbox")


def _third(networks: Sequence[str], draw: random.Random) -> list[str]:
    return draw.sample(list(networks), math.ceil(len(networks) * _SHARE))


def _write(
    rows: Mapping[str, Mapping[str, _Row]],
    kit: Mapping[str, Conformance],
    challenges: Mapping[str, Mapping[str, Challenge]],
    folders: Folders,
) -> list[str]:
    """All of it; a submission is taken whole or not at all."""
    written = []
    for suite, found in rows.items():
        for name, row in found.items():
            target = folders.records / suite / f"{name}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, row.record)
            written.append(f"{suite}/{name}")
        # Those that were there are validated when boards are built, the new ones were made or read above.
        records = suite_records(folders.records, suite, spot_checks=0)
        agreements = [one for row in found.values() for one in row.agreements]
        remember(folders.trust, records, agreements, {name: kit[name] for name in found})
        asked = challenges.get(suite, {})
        for record in records:
            if record.name in asked:
                remember_challenge(folders.trust, record, asked[record.name])
    return written


def pending(plugins: Path, folders: Folders) -> list[Path]:
    """Folders of plugins whose rows on the boards are missing, or are not of the source that lies there.

    Asked of the tree and the records, not of a change: what one job did not come to, the next one finds.
    """
    there = [read_record(path) for paths in record_files(folders.records).values() for path in paths]
    known: dict[str, set[str]] = {}
    for record in there:
        known.setdefault(record.plugin.distribution, set()).add(record.plugin.sha256)
    trees = [read_tree(folder) for folder in sorted(plugins.iterdir()) if folder.is_dir()]
    return [plugins / tree.folder.name for tree in trees if known.get(tree.distribution) != {tree.sha256}]
