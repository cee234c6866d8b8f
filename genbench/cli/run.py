"""`genbench run` and `genbench plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import to_builtins

from genbench.cli.common import common_options, debugging, store_option
from genbench.cli.execution import Execution, execution_options, worker_options
from genbench.cli.names import complete_measures
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import print_json, print_table

F = TypeVar("F", bound=Callable[..., Any])


def _measure_options(function: F) -> F:
    for option in (
        click.option("--all", "all_measures", is_flag=True, help="Every registered measure."),
        click.option(
            "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
            help="A measure by name, or from a file; may be repeated.", shell_complete=complete_measures,
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command()
@suite_options
@_measure_options
@store_option
@execution_options
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE.html",
    help="Where the HTML report goes.  [default: into the store]",
)  # fmt: skip
@click.option(
    "--records", type=click.Path(path_type=Path), metavar="DIR",
    help="Write a result record of every measure, as leaderboards keep them.",
)  # fmt: skip
@click.option(
    "--table", type=click.Path(path_type=Path), metavar="FILE.csv",
    help="Where the record table of a population goes.  [default: into the store]",
)  # fmt: skip
@common_options
def run(
    choice: SuiteChoice,
    specs: tuple[str, ...],
    all_measures: bool,
    store: Path,
    execution: Execution,
    report: Path | None,
    records: Path | None,
    table: Path | None,
    as_json: bool,
) -> int:
    """Score measures against held-out truth.

    Computes them on every network of a suite and compares their order with that of the held-out errors.
    The same command goes on after an interruption; finished work is never done twice.
    """
    from genbench.api.planning import plan_run
    from genbench.api.runs import execute_plan
    from genbench.report.record_table import check_table_path, write_table
    from genbench.report.run_page import check_page_path, default_page, write_run_page
    from genbench.report.runs import run_document, show_run

    if report is not None:
        check_page_path(report)
    if table is not None:
        check_table_path(table)
    how = execution.settle()
    loaded = choice.open(store, execution)
    planned = plan_run(loaded, dict.fromkeys(specs), everything=all_measures)
    found = execute_plan(loaded, planned, how, records=records, quiet=as_json).result
    page = report or default_page(store, found.plan.suite)
    written = write_table(found, store, table)
    if debugging():
        from genbench.report.outputs import output_blocks

        printed = ((one.name, *reading) for one in found.asked for reading in one.outcomes.items())
        for block in output_blocks(printed):
            click.echo(block, err=True)
    # The numbers first: drawing the page takes a second or two.
    if not as_json:
        show_run(found, written)
    write_run_page(found, page)
    if as_json:
        own = found.evidence.pages(found.judged).document(written)
        print_json({**to_builtins(run_document(found)), **to_builtins(own), "report": str(page)})
    else:
        click.echo(f"report: {page}")
    return 0 if found.sound else 1


@click.command()
@suite_options
@_measure_options
@store_option
@worker_options
@common_options
def plan(
    choice: SuiteChoice,
    specs: tuple[str, ...],
    all_measures: bool,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> None:
    """Say what run would do, and how long it takes.

    Without a measure: the suite's networks and their truths alone.
    """
    from genbench.api.planning import plan_run
    from genbench.runs.execute import workers_of
    from genbench.runs.forecast import estimate
    from genbench.runs.plan import make_plan

    how = execution.settle()
    loaded = choice.open(store, execution)
    if specs or all_measures:
        plan_ = plan_run(loaded, dict.fromkeys(specs), everything=all_measures).plan
    else:
        plan_ = make_plan(loaded.suite, [], pack=loaded.pack)
    forecast = estimate(plan_, store, workers_of(plan_, store, how))
    if as_json:
        print_json(forecast.document())
        return
    print_table(
        ["step", "cells", "stored", "to compute", "seconds"],
        forecast.rows(),
        title=f"suite {plan_.suite.title}",
        right=["cells", "stored", "to compute", "seconds"],
    )
    for line in (forecast.sentence(), *forecast.details()):
        click.echo(line)
