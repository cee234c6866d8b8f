"""`genbench new` and `genbench check`: for authors of measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options
from genbench.display.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.conformance import CheckResult


@click.command()
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), help="Folder to make.  [default: genbench-NAME]")
@common_options
def new(name: str, into: Path | None, as_json: bool) -> None:
    """Start a measure of your own as a package.

    Writes code, a test and a CI workflow for a measure called NAME.
    """
    from genbench.authoring import write_package

    target = into or Path(f"genbench-{name.replace('_', '-')}")
    files = write_package(name, target)
    if as_json:
        print_json({"measure": name, "folder": str(target), "files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(f"wrote {file}")
    click.echo(f"next: pip install -e '{target}[test]', then genbench check {name}")


@contextmanager
def _live(measure: str) -> Iterator[Callable[[CheckResult], None]]:
    """Says which check has ended: in one line that changes on a terminal, in a line each elsewhere."""
    if not sys.stderr.isatty():
        yield lambda result: click.echo(f"{measure}: {result.outcome}: {result.name}", err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status(f"checking {measure}") as status:
        yield lambda result: status.update(f"checking {measure}: {result.name}")


@click.command()
@click.argument("spec", metavar="NAME|FILE.py[:FUNCTION]")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
    metavar="SECONDS", help="Time limit of one check.",
)  # fmt: skip
@common_options
def check(spec: str, timeout: float, as_json: bool) -> int:
    """Test that a measure keeps the contract.

    Runs the conformance kit on it, each check in a process of its own: promises that every measure makes, and
    findings on networks that compute the same function.
    """
    from genbench.conformance import run_checks
    from genbench.engine.guard import Limits
    from genbench.plugin.registry import find_measure

    reports = []
    for entry in find_measure(spec):
        with _live(entry.item.name) as told:
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
            rows = [{"check": r.name, "status": r.outcome, "detail": r.detail} for r in report.results]
            print_table(["check", "status", "detail"], rows, title=report.measure)
            click.echo(report.summary())
    return 1 if any(report.failed for report in reports) else 0
