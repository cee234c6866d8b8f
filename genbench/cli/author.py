"""`genbench new` and `genbench check`: for authors of measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genbench.cli.common import common_options, debugging
from genbench.display.tables import print_json, print_table
from genbench.errors import UserError

if TYPE_CHECKING:
    from genbench.conformance import CheckResult


@click.command()
@click.argument("name", required=False)
@click.option(
    "--collection", metavar="NAME", help="Start a suite of networks of your own instead, with an example."
)
@click.option(
    "--into", type=click.Path(path_type=Path),
    help="Folder to make.  [default: genbench-NAME, of a collection NAME]",
)  # fmt: skip
@common_options
def new(name: str | None, collection: str | None, into: Path | None, as_json: bool) -> None:
    """Start a measure of your own as a package, or a collection of networks.

    Writes code, a test and a CI workflow for a measure called NAME.
    """
    from genbench.authoring import write_package

    if (name is None) == (collection is None):
        raise UserError("say what to start: `genbench new NAME` a measure, `--collection NAME` a collection")
    if collection is not None:
        _new_collection(collection, into or Path(collection), as_json)
        return
    assert name is not None
    target = into or Path(f"genbench-{name.replace('_', '-')}")
    files = write_package(name, target)
    if as_json:
        print_json({"measure": name, "folder": str(target), "files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(f"wrote {file}")
    click.echo(f"next: pip install -e '{target}[test]', then genbench check {name}")


def _new_collection(name: str, target: Path, as_json: bool) -> None:
    from genbench.collection.example import write_collection

    files = write_collection(name, target)
    suite = target / f"{name}.toml"
    if as_json:
        print_json({"name": name, "folder": str(target), "suite": str(suite), "files": list(map(str, files))})
        return
    for file in files:
        if file.suffix != ".safetensors":
            click.echo(f"wrote {file}")
    click.echo(f"wrote weights of {sum(file.parent.name == 'weights' for file in files)} small networks")
    click.echo(f"next: genbench run --suite {suite} --measure path_norm")


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
            if debugging():
                for result in report.failed:
                    click.echo(f"{result.name}: output of {report.measure}:\n{result.output}", err=True)
    return 1 if any(report.failed for report in reports) else 0
