"""`genbench pack`: build, verify and look at evidence packs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench.cli.common import common_options, parse_memory, store_option
from genbench.cli.run import execution_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.report.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.engine.store import Store
    from genbench.suites import TestbedSuite
    from genbench.testbed.plan import TestbedPlan


@click.group()
def pack() -> None:
    """Evidence packs: adapted networks and cubes, with hashes.

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
    as_json: bool,
    **execution: Any,
) -> None:
    """Build a suite's evidence and write it as a pack.

    Whoever has the folder uses it with `genbench run --pack DIR`.
    """
    from genbench.engine.scheduler import provenance
    from genbench.testbed.pack import read_pack
    from genbench.testbed.packing import build_pack

    suite = _testbed(choice)

    def write(plan: TestbedPlan, opened: Store) -> None:
        machine = {key: value for key, value in provenance().items() if key != "time"}
        build_pack(suite, plan, opened, target, machine, version)

    _from_scratch(suite, store, as_json, write, **execution)
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
def verify(choice: SuiteChoice, store: Path, as_json: bool, **execution: Any) -> int:
    """Build a suite's evidence anew and compare it with its pack.

    On the machine that built the pack everything agrees to the bit; elsewhere every statistic of a cube
    must agree to 1e-3. Give a fresh --store to rebuild what this one already has.
    """
    from genbench.errors import UserError
    from genbench.testbed.packing import Comparison, compare

    suite = _testbed(choice)
    pack_ = choice.pack(suite)
    if pack_ is None:
        raise UserError(f"suite {suite.title} has no evidence pack to verify; name one with --pack")
    found: list[Comparison] = []

    def check(plan: TestbedPlan, opened: Store) -> None:
        found.extend(compare(pack_, plan, opened))

    _from_scratch(suite, store, as_json, check, **execution)
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


def _testbed(choice: SuiteChoice) -> TestbedSuite:
    from genbench.errors import UserError
    from genbench.suites import TestbedSuite

    suite = choice.load()
    if not isinstance(suite, TestbedSuite):
        raise UserError(f"suite {suite.name} is no testbed; evidence packs are for testbeds")
    return suite


def _from_scratch(
    suite: TestbedSuite,
    store: Path,
    quiet: bool,
    use: Any,
    *,
    jobs: int | None,
    timeout: float,
    memory: str | None,
    executor: str,
) -> None:
    """Bring a suite's networks and cubes to their end, then let `use` read them in the store."""
    from dataclasses import replace

    from genbench.engine.guard import Limits
    from genbench.report.progress import make_progress
    from genbench.runs import Plan, bring_to_end, make_plan, require_ready
    from genbench.testbed.plan import TestbedPlan

    plan = make_plan(suite, [])
    evidence = plan.evidence
    assert isinstance(evidence, TestbedPlan)
    # Networks are made on demand; a pack demands them.
    wanted = replace(
        evidence,
        subjects=[replace(s, network=replace(s.network, on_demand=False)) for s in evidence.subjects],
    )
    whole = Plan(plan.suite, wanted, plan.measures, plan.asked, plan.readings)
    limits = Limits(timeout, parse_memory(memory))
    require_ready(whole, executor)
    with make_progress(whole, store, jobs=jobs, quiet=quiet) as progress:
        bring_to_end(
            whole,
            store,
            progress,
            lambda opened, outcomes: use(wanted, opened),
            jobs=jobs,
            limits=limits,
            executor=executor,
        )
