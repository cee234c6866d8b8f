"""`genbench judge`, `genbench networks` and `genbench calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from genbench.cli.common import common_options, store_option
from genbench.cli.execution import Execution, execution_options
from genbench.cli.suite_options import SuiteChoice, suite_options
from genbench.display.tables import fitting_columns, print_json, print_table, print_text

if TYPE_CHECKING:
    from genbench.suites.evidence import Evidence

__all__ = ["calibrate", "judge", "networks"]

_BAND = 0.07
"""Share of empty measures that may pass a question at the nominal 5 %."""


_permutations_option = click.option(
    "--permutations", type=click.IntRange(min=1000), default=20_000, show_default=True,
    help="Behind every p-value, the same for all measures.",
)  # fmt: skip


def _evidence(choice: SuiteChoice, quiet: bool, store: Path, execution: Execution) -> Evidence:
    """Out of the suite's pack, or else computed and stored as `genbench run` does."""
    return choice.open(store, execution).find_evidence(quiet=quiet)


@click.command()
@click.argument("readings", type=click.Path(path_type=Path))
@suite_options
@click.option(
    "--higher-means", "meanings", multiple=True, metavar="better|worse|NAME:better",
    help="Which way measures point, all or one by name; `worse` unless genbench knows the measure.",
)  # fmt: skip
@_permutations_option
@store_option
@execution_options
@common_options
def judge(
    readings: Path,
    choice: SuiteChoice,
    meanings: tuple[str, ...],
    permutations: int,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> None:
    """Judge readings that were computed elsewhere.

    READINGS is a CSV or Parquet file with a column `network`, as `genbench networks` names them, and one
    column per measure. Every measure is asked four questions: does it order networks at all (chance), at
    equal architecture and size (size), beyond training loss and error (fit), at equal settings (settings)?
    """
    from genbench.plugin.registry import load_registry
    from genbench.scoring.board_baselines import judge_baselines
    from genbench.scoring.readings_file import directions, read_readings, readings_of
    from genbench.scoring.verdicts import judge as judge_readings

    # Evidence may take a while to compute: first what can be wrong with the file.
    frame = read_readings(readings)
    evidence = _evidence(choice, as_json, store, execution)
    everything = evidence.networks
    values = readings_of(frame, readings, everything, evidence.suite.title)
    known_measures = {name: entry.item for name, entry in load_registry().measures.items()}
    signs = directions(meanings, list(values), known_measures)
    known = evidence.known_networks()
    rows = [everything.index(name) for name in known.names]
    oriented = {name: signs[name] * column[rows] for name, column in values.items()}
    seed = evidence.suite.bootstrap_seed
    board = judge_readings(known, oriented, permutations=permutations, seed=seed)
    baselines = judge_baselines(known, oriented, seed=seed)
    if as_json:
        from genbench.report.score_document import judge_document

        print_json(judge_document(evidence.suite.name, len(known), board, baselines))
        return
    show_verdicts(board, baselines, f"{evidence.suite.title}: {len(known)} networks")
    for name, one in board.measures.items():
        if one.dropped:
            click.echo(f"{name}: {one.dropped} networks without a finite reading are left out", err=True)


def show_verdicts(board: Any, baselines: Any, title: str) -> None:
    """Measures, then baselines, then what they mean."""
    from genbench.display.verdict_tables import (
        SHORT_VERDICT_COLUMNS,
        VERDICT_COLUMNS,
        baseline_rows,
        verdict_rows,
        verdict_words,
    )

    rows = verdict_rows(board)
    columns = fitting_columns(VERDICT_COLUMNS, rows)
    whole = columns == VERDICT_COLUMNS
    if not whole:
        columns = fitting_columns(SHORT_VERDICT_COLUMNS, rows)
    words = [name for name in columns if name in ("measure", "passes")]
    print_table(columns, rows, title=title, right=[name for name in columns if name not in words])
    below = baseline_rows(baselines)
    left = [] if whole else ["the answers to every question"]
    if below:
        columns = fitting_columns(list(below[0]), below)
        print_table(columns, below, right=["sign-error", "95 % interval", "beaten by"])
        left += [f"{name!r} of baselines" for name in below[0] if name not in columns]
    for line in verdict_words(board, baselines):
        print_text(line, err=True)
    if left:
        print_text(f"a wider terminal shows {' and '.join(left)}", err=True)


@click.command()
@suite_options
@store_option
@execution_options
@common_options
def networks(choice: SuiteChoice, store: Path, execution: Execution, as_json: bool) -> None:
    """List the networks of a suite and what may be known of them.

    Names as `genbench judge` takes them, architecture, weights, settings and how training ended; never what a
    network did on held-out data.
    """
    evidence = _evidence(choice, as_json, store, execution)
    records = [{"network": name, **to_builtins(facts)} for name, facts in evidence.public().items()]
    if as_json:
        print_json(records)
        return
    rows = [
        {key: _shown(key, value) for key, value in record.items() if key != "judged"} for record in records
    ]
    columns = list(rows[0]) if rows else ["network"]
    print_table(
        fitting_columns(columns, rows), rows, right=["weights", "train_loss", "train_accuracy", "epochs"]
    )
    left_out = sum(not record.get("judged", True) for record in records)
    note = f"; {left_out} did not converge and are not judged" if left_out else ""
    click.echo(f"{len(records)} networks{note}", err=True)


def _shown(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={part}" for name, part in value.items())
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command()
@suite_options
@click.option(
    "--measures", type=click.IntRange(min=10), default=1000, show_default=True,
    help="Empty measures of each kind, synthetic ones, and pairs of them for each difference.",
)  # fmt: skip
@_permutations_option
@click.option(
    "--records", type=click.Path(path_type=Path),
    help="Keep it in this folder, from which the suite's board takes it: leaderboards/calibrations.",
)  # fmt: skip
@store_option
@execution_options
@common_options
def calibrate(
    choice: SuiteChoice,
    measures: int,
    permutations: int,
    records: Path | None,
    store: Path,
    execution: Execution,
    as_json: bool,
) -> None:
    """Test the answers of a suite with measures that say nothing, or a known amount.

    How many empty measures pass a question that they must fail, how often 95 % intervals hold the sign-error
    that they should, and how small a difference of two sign-errors is told apart four times in five.
    """
    from genbench.leaderboard.calibrations import pack_of, write_calibration
    from genbench.scoring.calibrate import calibrate as calibrate_networks
    from genbench.scoring.questions import QUESTIONS

    evidence = _evidence(choice, as_json, store, execution)
    if records is not None:
        pack_of(evidence)
    found = calibrate_networks(
        evidence.known_networks(), measures, permutations=permutations, seed=evidence.suite.bootstrap_seed
    )
    if records is not None:
        path = write_calibration(records, evidence, found, measures=measures, permutations=permutations)
        click.echo(f"written: {path}", err=True)
    if as_json:
        print_json({"suite": evidence.suite.name, "measures": measures, **to_builtins(found)})
        return
    shares = {(one.empty, one.question): one.share for one in found.false_passes}
    rows = [
        {"empty measure": empty, **{name: _share(shares, empty, name) for name in QUESTIONS}}
        for empty in dict.fromkeys(one.empty for one in found.false_passes)
    ]
    title = f"{evidence.suite.title}: share of {measures} that pass, at the nominal 5 % (at most {_BAND:.0%})"
    print_table(["empty measure", *QUESTIONS], rows, title=title, right=QUESTIONS)
    if found.power:
        told = [
            {"difference": f"{one.difference:.2f}", "told apart": f"{one.share:.1%}"} for one in found.power
        ]
        title = f"two measures, the better one with a sign-error of {found.base:.2f}"
        print_table(["difference", "told apart"], told, title=title, right=["difference", "told apart"])
        smallest = found.smallest_difference
        words = "none of these differences is" if smallest is None else f"a difference of {smallest:.3f} is"
        click.echo(f"95 % intervals hold the known sign-error in {found.covered:.1%}")
        click.echo(f"{words} told apart four times in five, by a single paired test at 5 %")
    for question, reason in found.cannot_ask.items():
        click.echo(f"{question} cannot be asked: {reason}", err=True)


def _share(shares: dict[tuple[str, str], float | None], empty: str, question: str) -> str:
    if (empty, question) not in shares:
        return ""
    share = shares[empty, question]
    return "–" if share is None else f"{share:.1%}"
