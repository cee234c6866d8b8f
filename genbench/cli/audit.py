"""`genbench audit`: is a measure fragile?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options
from genbench.display.tables import print_json, print_table, show
from genbench.errors import UserError

if TYPE_CHECKING:
    from genbench.engine.store import Store
    from genbench.packs.pack import Pack
    from genbench.plugin.contract import Measure
    from genbench.plugin.registry import Entry
    from genbench.runs.execute import RunOptions


@click.command()
@click.option(
    "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
    help="A measure by name, or from a file; may be repeated.",
)  # fmt: skip
@click.option("--all", "all_measures", is_flag=True, help="Every registered measure.")
@click.option(
    "--stressor", default="", metavar="A,B",
    help="Only these: slope, drift, hysteresis, labels, tasks, pixels, exp, spread.",
)  # fmt: skip
@click.option("--card/--no-card", default=True, help="Whether to read networks with one function too.")
@click.option("--quick", is_flag=True, help="Train few networks shortly instead: a try, no verdict to quote.")
@click.option("--from-scratch", is_flag=True, help="Train the audit's networks instead of taking its pack.")
@click.option(
    "--pack", "pack_folder", type=click.Path(path_type=Path), metavar="DIR", help="Another pack of networks."
)
@click.option(
    "--write-pack", type=click.Path(path_type=Path), metavar="DIR",
    help="Train all networks, write them as a pack, and read nothing.",
)  # fmt: skip
@click.option("--verify-pack", is_flag=True, help="Train all networks and compare them with the pack.")
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE.html",
    help="Where the HTML report goes.  [default: into the store]",
)  # fmt: skip
@click.option(
    "--records", type=click.Path(path_type=Path), metavar="DIR",
    help="Write a record of every measure, from which boards and papers are made: leaderboards/audits.",
)  # fmt: skip
@click.option(
    "--export", "export_to", type=click.Path(path_type=Path), metavar="DIR",
    help="Write a LaTeX table and the figures as PDF.",
)  # fmt: skip
@store_option
@execution_options
@common_options
def audit(
    specs: tuple[str, ...],
    all_measures: bool,
    stressor: str,
    card: bool,
    quick: bool,
    from_scratch: bool,
    pack_folder: Path | None,
    write_pack: Path | None,
    verify_pack: bool,
    report: Path | None,
    records: Path | None,
    export_to: Path | None,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> int:
    """Say whether a measure is fragile.

    Reads it on small networks between which nothing that matters changes (optimizer, time, scale of weights)
    or something does (labels, tasks, pixels), and gives one verdict per stressor (paper 000).
    """
    from genbench.audit.plan import plan_audit
    from genbench.audit.report import audit_table, card_table, document_of, write_audit_page
    from genbench.audit.setups import STRESSORS, quick_setups
    from genbench.audit.whole import audit_measures
    from genbench.report.progress import cell_progress
    from genbench.report.run_page import check_page_path

    how = execution.settle()
    chosen = [name for name in STRESSORS if not stressor or name in stressor.split(",")]
    if write_pack is not None:
        return _write_pack(write_pack, store, how, as_json)
    if verify_pack:
        return verify_audit_pack(pack_folder, store, how, as_json)
    pack = None if from_scratch or quick else _pack(pack_folder)
    unknown = [name for name in stressor.split(",") if name and name not in STRESSORS]
    if unknown:
        raise UserError(f"there is no stressor {unknown[0]!r}; there are {', '.join(STRESSORS)}")
    if records is not None and (quick or stressor or from_scratch or pack_folder is not None):
        raise UserError(
            "records are of all stressors and of the pack that ships, so that they can be compared; drop "
            "--quick, --stressor, --from-scratch and --pack, or --records"
        )
    if report is not None:
        check_page_path(report)
    entries = _entries(specs, all_measures)
    plan = plan_audit(chosen, pack, quick_setups(chosen) if quick else None)
    if pack is None:
        click.echo(f"{len(plan.networks)} networks are trained first, unless they are stored", err=True)
    with cell_progress(quiet=as_json) as progress:
        seconds = execution.timeout if card else None
        audits = audit_measures(plan, chosen, entries, store, progress, card_seconds=seconds, **how)
    against = pack.version if pack is not None else ""
    page = report or store / "reports" / "audit.html"
    if not as_json:
        for one in audits:
            show([audit_table(one), *([card_table(one)] if one.card else []), one.summary])
    if records is not None:
        from genbench.audit.records import write_audits

        write_audits(audits, records, against)
    if export_to is not None:
        from genbench.audit.paper import export_audit

        for one in audits:
            export_audit(one, export_to)
    command = " ".join(["genbench", *sys.argv[1:]])
    write_audit_page(audits, page, store, command, against)
    if as_json:
        documents = [document_of(one, against) for one in audits]
        print_json({"audits": documents, "report": str(page)})
    else:
        click.echo(f"report: {page}")
    return 1 if any(one.readings.failed for one in audits) else 0


def _entries(specs: tuple[str, ...], all_measures: bool) -> list[Entry[Measure]]:
    from genbench.plugin.registry import find_measure, load_registry

    if not specs and not all_measures:
        raise UserError("say what to audit: --measure NAME, --measure ./file.py, or --all")
    entries = [entry for spec in dict.fromkeys(specs) for entry in find_measure(spec)]
    named = {entry.item.name for entry in entries}
    others = load_registry().measures.values() if all_measures else []
    return [*entries, *(entry for entry in others if entry.item.name not in named)]


def _pack(folder: Path | None) -> Pack | None:
    from genbench.audit.manifest import AuditManifest
    from genbench.audit.plan import audit_content, shipped_pack
    from genbench.packs.pack import read_pack

    if folder is None:
        return shipped_pack()
    pack = read_pack(folder, AuditManifest)
    if pack.manifest.evidence != audit_content():
        raise UserError(f"the pack {folder} has other networks than this audit; drop --pack")
    return pack


def _write_pack(target: Path, store: Path, how: RunOptions, as_json: bool) -> int:
    """Train everything and write it."""
    from genbench.audit.execute import finish
    from genbench.audit.packing import write_audit_pack
    from genbench.audit.plan import plan_audit
    from genbench.audit.setups import STRESSORS
    from genbench.engine.scheduler import provenance
    from genbench.packs.pack import read_pack
    from genbench.report.progress import cell_progress

    plan = plan_audit(list(STRESSORS))
    machine = provenance()
    machine.pop("time", None)

    def write(opened: Store, _: object) -> None:
        write_audit_pack(plan, opened, target, machine)

    with cell_progress(quiet=as_json) as progress:
        finish(plan.cells(), store, progress, write, **how)
    size = sum(file.stat().st_size for file in target.iterdir())
    made = read_pack(target)
    if as_json:
        print_json({"pack": str(target), "version": made.version, "sha256": made.hash, "bytes": size})
    else:
        click.echo(f"{target}: {made.version}, {size / 1e6:.1f} MB")
    return 0


def verify_audit_pack(folder: Path | None, store: Path, how: RunOptions, as_json: bool) -> int:
    """Train everything and compare it with a pack, or with the one that ships."""
    from genbench.audit.execute import finish
    from genbench.audit.packing import compare_audit
    from genbench.audit.plan import plan_audit
    from genbench.audit.setups import STRESSORS
    from genbench.report.progress import cell_progress

    pack = _pack(folder)
    if pack is None:
        raise UserError("there is no pack of the audit to verify; name one with --pack")
    plan = plan_audit(list(STRESSORS))
    with cell_progress(quiet=as_json) as progress:
        compared = finish(plan.cells(), store, progress, lambda s, _: compare_audit(pack, plan, s), **how)
    agrees = all(one.agrees for one in compared)
    if as_json:
        print_json({"pack": pack.version, "agrees": agrees, "stacks": [vars(one) for one in compared]})
    else:
        rows = [
            {
                "stack": one.name,
                "same bits": "yes" if one.same_bits else "no",
                "errors differ by": one.difference,
            }
            for one in compared
        ]
        print_table(list(rows[0]), rows, title=f"pack {pack.version}", right=["errors differ by"])
    return 0 if agrees else 1
