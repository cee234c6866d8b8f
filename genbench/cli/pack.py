"""`genbench pack`: build, verify and look at evidence packs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.engine.store import Store
    from genbench.packs.build import Comparison
    from genbench.suites.plan import EvidencePlan
    from genbench.suites.suite import Suite


@click.group()
def pack() -> None:
    """Evidence packs: trained networks and their evidence, with hashes.

    A suite that ships a pack scores a measure in seconds, and everyone against the same evidence.
    """


@pack.command()
@suite_options
@click.option(
    "--to", "target", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The new pack."
)
@click.option("--version", type=click.IntRange(min=1), default=1, show_default=True, help="Its version.")
@store_option
@execution_options
@common_options
def build(
    choice: SuiteChoice,
    target: Path,
    version: int,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> None:
    """Build a suite's evidence and write it as a pack.

    Whoever has the folder uses it with `genbench run --pack DIR`.
    """
    from genbench.engine.compute import current
    from genbench.engine.scheduler import provenance
    from genbench.packs.pack import read_pack
    from genbench.suites.evidence_packs import build_pack

    suite = choice.open().suite

    def write(plan: EvidencePlan, opened: Store) -> None:
        machine = provenance()
        machine.pop("time", None)
        device, threads = current().device.partition(":")[0], current().threads
        if (device, threads) != ("cpu", 1):  # as in packs that say nothing of it
            machine["device"], machine["threads"] = device, threads
        build_pack(suite, plan, opened, target, machine, version)

    _from_scratch(suite, store, as_json, write, execution)
    made = read_pack(target)
    size = sum(file.stat().st_size for file in target.iterdir())
    if as_json:
        print_json({"pack": str(target), "version": made.version, "sha256": made.hash, "bytes": size})
    else:
        click.echo(f"{target}: {made.version}, {size / 2**20:.1f} MB")


@pack.command()
@suite_options
@store_option
@execution_options
@common_options
def verify(choice: SuiteChoice, store: Path, execution: Execution, as_json: bool) -> int:
    """Build a suite's evidence anew and compare it with its pack.

    On the machine that built the pack, with as many threads, everything agrees to the bit; elsewhere every
    statistic of a cube must agree to 1e-3, and networks trained from scratch are others. Give a fresh --store
    to rebuild what this one already has. `--suite audit` compares the networks of `genbench audit`.
    """
    from genbench.errors import UserError
    from genbench.suites.kind import kind_of

    if choice.spec == "audit":  # whose networks are those of no suite
        from genbench.cli.audit import verify_audit_pack

        place = None if choice.pack_place is None else Path(choice.pack_place)
        return verify_audit_pack(place, store, execution.settle(), as_json)
    loaded = choice.open()
    suite, pack_ = loaded.suite, loaded.pack
    if pack_ is None:
        raise UserError(f"suite {suite.title} has no evidence pack to verify; name one with --pack")
    found: list[Comparison] = []

    def check(plan: EvidencePlan, opened: Store) -> None:
        found.extend(kind_of(suite).compare_pack(pack_, plan, opened))

    _from_scratch(suite, store, as_json, check, execution)
    rows = [
        {
            "evidence": one.name,
            "same bits": "yes" if one.same_bits else "no",
            "largest difference": f"{one.difference:.3g}",
            "agrees": "yes" if one.agrees else "NO",
        }
        for one in found
    ]
    agrees = all(one.agrees for one in found)
    if as_json:
        print_json({"pack": pack_.version, "agrees": agrees, "evidence": [vars(one) for one in found]})
    else:
        print_table(list(rows[0]), rows, title=f"pack {pack_.version}", right=["largest difference"])
        same = sum(one.same_bits for one in found)
        click.echo(
            f"{same} of {len(found)} agree to the bit; the pack {'holds' if agrees else 'does NOT hold'}"
        )
    return 0 if agrees else 1


def _from_scratch(
    suite: Suite,
    store: Path,
    quiet: bool,
    use: Callable[[EvidencePlan, Store], None],
    execution: Execution,
) -> None:
    """Bring a suite's networks and evidence to their end, then let `use` read them in the store."""
    from dataclasses import replace

    from genbench.report.progress import make_progress
    from genbench.runs.execute import bring_to_end, require_ready, workers_of
    from genbench.runs.plan import make_plan

    how = execution.settle()
    plan = make_plan(suite, [])
    whole = replace(plan, evidence=plan.evidence.with_all_kept())
    require_ready(whole, execution.executor)
    with make_progress(whole, store, jobs=workers_of(whole, store, how), quiet=quiet) as progress:
        bring_to_end(whole, store, progress, lambda opened, outcomes: use(whole.evidence, opened), **how)
