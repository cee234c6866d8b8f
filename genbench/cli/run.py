"""`genbench run` and `genbench plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import to_builtins

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options, worker_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import print_json, print_table

if TYPE_CHECKING:
    from genbench.run.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])


def _measure_options(function: F) -> F:
    for option in (
        click.option("--all", "all_measures", is_flag=True, help="Every registered measure."),
        click.option(
            "--measure", "-m", "specs", multiple=True, metavar="NAME|FILE.py[:FUNCTION]",
            help="A measure by name, or from a file; may be repeated.",
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
    from genbench.report.progress import make_progress
    from genbench.report.record_table import check_table_path, write_table
    from genbench.report.run_page import check_page_path, default_page, write_run_page
    from genbench.report.runs import run_document, show_run
    from genbench.run.execute import execute, require_ready, workers_of

    if report is not None:
        check_page_path(report)
    if table is not None:
        check_table_path(table)
    how = execution.settle()
    plan_ = _plan(choice, specs, all_measures, store)
    if records is not None:
        from genbench.records.write import require_recordable

        require_recordable(plan_.suite)
    require_ready(plan_, execution.executor)
    with make_progress(plan_, store, jobs=workers_of(plan_, store, how), quiet=as_json) as progress:
        found = execute(plan_, store, progress, **how)
    if records is not None:
        from genbench.records.write import write_records

        write_records(found, records)
    page = report or default_page(store, plan_.suite)
    written = write_table(found, store, table)
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
    from genbench.run.execute import workers_of
    from genbench.run.forecast import estimate
    from genbench.run.plan import make_plan

    how = execution.settle()
    if specs or all_measures:
        plan_ = _plan(choice, specs, all_measures, store)
    else:
        suite = choice.load()
        plan_ = make_plan(suite, [], pack=choice.pack(suite))
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


def _plan(choice: SuiteChoice, specs: tuple[str, ...], all_measures: bool, store: Path) -> Plan:
    """The measures asked for, and beside them the baselines and whatever is already known in full."""
    from dataclasses import replace

    from genbench.errors import UserError
    from genbench.plugin.registry import BUILT_IN, find_measure, load_registry
    from genbench.records.references import find_references
    from genbench.run.plan import make_plan, stored_measures

    if not specs and not all_measures:
        raise UserError("say what to run: --measure NAME, --measure ./file.py, or --all")
    chosen = [entry for spec in dict.fromkeys(specs) for entry in find_measure(spec)]
    asked = {entry.item.name for entry in chosen}
    suite = choice.load()
    pack = choice.pack(suite)
    others = [e for e in load_registry().measures.values() if e.item.name not in asked]
    if all_measures:
        chosen += others
        return make_plan(suite, chosen, pack=pack)
    references = find_references(make_plan(suite, [], pack=pack), but=asked)
    unknown = [entry for entry in others if entry.item.name not in references]
    # The baselines are the anchors of every table, computed where their readings are not recorded.
    anchors = [e for e in unknown if e.item.category == "baseline" and e.source.kind == BUILT_IN]
    known = stored_measures(suite, [e for e in unknown if e not in anchors], store, pack)
    chosen += [e for e in unknown if e in anchors or e in known]
    return replace(make_plan(suite, chosen, asked=asked, pack=pack), references=references)
