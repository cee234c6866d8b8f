"""`genbench new` and `genbench check`: for authors of measures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options
from genbench.report.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.conformance import CheckResult


@click.command()
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), help="Folder to make.  [default: genbench-NAME]")
@common_options
def new(name: str, into: Path | None, as_json: bool) -> None:
    """Write a complete plugin package for a measure called NAME: code, test and CI workflow."""
    from genbench.authoring import write_package

    target = into or Path(f"genbench-{name.replace('_', '-')}")
    files = write_package(name, target)
    if as_json:
        print_json({"measure": name, "folder": str(target), "files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(f"wrote {file}")
    click.echo(f"next: pip install -e '{target}[test]', then genbench check {name}")


@click.command()
@click.argument("spec", metavar="NAME|FILE.py[:FUNCTION]")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
    metavar="SECONDS", help="Time limit of one check.",
)  # fmt: skip
@common_options
def check(spec: str, timeout: float, as_json: bool) -> int:
    """Run the conformance kit on a measure: does it keep the contract, what leaves it unchanged?"""
    from genbench.conformance import run_checks
    from genbench.engine.guard import Limits
    from genbench.registry import find_measure

    def told(result: CheckResult) -> None:
        click.echo(f"  {result.outcome:15}{result.name}", err=True)

    reports = []
    for entry in find_measure(spec):
        click.echo(f"checking {entry.item.name}", err=True)
        reports.append(run_checks(entry.source, entry.item.name, Limits(timeout, 2**32), told))
    if as_json:
        print_json(
            [
                {
                    "measure": r.measure,
                    "ran": r.ran,
                    "failed": len(r.failed),
                    "checks": [asdict(c) for c in r.results],
                }
                for r in reports
            ]
        )
    else:
        for report in reports:
            rows = [{"check": r.name, "outcome": r.outcome, "detail": r.detail} for r in report.results]
            print_table(["check", "outcome", "detail"], rows, title=report.measure)
            click.echo(report.summary())
    return 1 if any(report.failed for report in reports) else 0
