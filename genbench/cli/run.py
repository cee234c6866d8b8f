"""`genbench run` and `genbench plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genbench.cli.common import common_options, parse_memory, store_option
from genbench.report.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.runs import Plan

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SUITE = "digits"


def _what_to_run(function: F) -> F:
    for option in (
        click.option("--quick", is_flag=True, help="A small subset to try out; kept apart from the rest."),
        click.option("--all", "all_measures", is_flag=True, help="Every registered measure."),
        click.option(
            "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
            help="A measure by name, or from a file; may be repeated.",
        ),
        click.option(
            "--suite", "-s", default=DEFAULT_SUITE, show_default=True, metavar="NAME|FILE.toml",
            help="What to run it on.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command()
@_what_to_run
@store_option
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Worker processes.  [default: one per core]")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
    metavar="SECONDS", help="Time limit of one cell.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", help="Memory limit of one cell, as 4G or 500M.  [default: half the machine]"
)
@click.option("--executor", default="local", show_default=True, help="How cells are run.")
@common_options
def run(
    suite: str,
    specs: tuple[str, ...],
    all_measures: bool,
    quick: bool,
    store: Path,
    jobs: int | None,
    timeout: float,
    memory: str | None,
    executor: str,
    as_json: bool,
) -> int:
    """Score measures against held-out truth.

    Computes them on every network of a suite and compares their order with that of the held-out gap.
    The same command goes on after an interruption; finished work is never done twice.
    """
    from genbench.engine.guard import Limits
    from genbench.report.progress import make_progress
    from genbench.report.runs import run_record, show_run
    from genbench.runs import execute

    plan_ = _plan(suite, specs, all_measures, quick, store)
    limits = Limits(timeout, parse_memory(memory))
    with make_progress(plan_, store, jobs=jobs, quiet=as_json) as progress:
        report = execute(plan_, store, progress, jobs=jobs, limits=limits, executor=executor)
    if as_json:
        print_json(run_record(report))
    else:
        show_run(report)
    return 0 if report.sound else 1


@click.command()
@_what_to_run
@store_option
@common_options
def plan(
    suite: str, specs: tuple[str, ...], all_measures: bool, quick: bool, store: Path, as_json: bool
) -> None:
    """Say what run would do, and how long it takes."""
    from genbench.report.estimate import estimate

    plan_ = _plan(suite, specs, all_measures, quick, store)
    forecast = estimate(plan_, store)
    if as_json:
        print_json(forecast.record())
        return
    print_table(
        ["step", "cells", "stored", "to compute", "seconds each"],
        forecast.rows(),
        title=f"suite {plan_.suite.title}",
        right=["cells", "stored", "to compute", "seconds each"],
    )
    click.echo(forecast.sentence())


def _plan(suite: str, specs: tuple[str, ...], all_measures: bool, quick: bool, store: Path) -> Plan:
    """The measures asked for, and beside them the baselines and whatever the store knows in full."""
    from genbench.errors import UserError
    from genbench.registry import find_measure, load_registry
    from genbench.runs import is_stored, make_plan
    from genbench.suites import load_suite

    if not specs and not all_measures:
        raise UserError("say what to run: --measure NAME, --measure ./file.py, or --all")
    chosen = [entry for spec in dict.fromkeys(specs) for entry in find_measure(spec)]
    asked = {entry.item.name for entry in chosen}
    loaded = load_suite(suite, quick=quick)
    for entry in load_registry().measures.values():
        # The baselines are the anchors of every table; they cost next to nothing.
        anchor = entry.item.category == "baseline" and entry.source.kind == "built-in"
        if entry.item.name not in asked and (all_measures or anchor or is_stored(loaded, entry, store)):
            chosen.append(entry)
    if all_measures:
        asked = {entry.item.name for entry in chosen}
    return make_plan(loaded, chosen, asked=asked)
