"""The result of a run as tables and as a JSON document."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from msgspec import Struct

from genbench._version import __version__
from genbench.display.names import reading_note
from genbench.display.tables import Shown, Table, fitting_columns, print_table, print_text, show
from genbench.display.verdict_tables import claim_words, passed_words
from genbench.engine.cells import Outcome, Status
from genbench.plugin.contract import Detail
from genbench.report.plain_words import plain_verdict
from genbench.runs.execute import RunResult
from genbench.scoring.board_baselines import Baseline
from genbench.scoring.claims import Claims
from genbench.scoring.verdicts import Answer
from genbench.suites.evidence import Facts
from genbench.suites.fields import Toml
from genbench.suites.kind import Kind, kind_of
from genbench.suites.pages import Pages
from genbench.suites.result import MeasureResult

__all__ = ["MeasureDocument", "ReadingDocument", "RunDocument", "run_document", "show_run"]

_QUICK = "quick run: a small subset, not comparable with full results"
_FEW = 3
"""Up to so many measures are shown one by one."""
_MOST_READINGS = 60
"""Networks whose readings are listed one by one; more are in the report."""
_FITS = 24
"""Rows of a table that a person takes in at once; beyond, only what concerns them is shown."""
_BEST = 5
_NEIGHBOURS = 2


def show_run(result: RunResult, table: Path | None = None) -> None:
    """Print the readings of the measures asked for, then every measure's score.

    Parameters
    ----------
    table : where the record table was written, if there is one.
    """
    pages = result.evidence.pages(result.judged)
    if len(result.asked) <= _FEW and len(result.evidence.networks) <= _MOST_READINGS:
        show(_readings(result, pages, measure) for measure in result.asked)
    else:
        show(_problems(result))
    _show_scores(result, pages)
    if result.judged.claims is not None:
        for line in claim_words(result.judged.claims):
            print_text(line, err=True)
    if len(result.asked) <= _FEW:
        for measure in result.asked:
            show(pages.failures(measure))
        for measure in result.asked:
            print_text(" ".join(plain_verdict(result, measure)))
    show(pages.closing(table))
    for warning in pages.warnings():
        print_text(warning, err=True)
    if table is not None:
        click.echo(f"table: {table}")
    if result.plan.suite.quick:
        click.echo(_QUICK)
    click.echo(f"store: {result.store}")


def _readings(result: RunResult, pages: Pages, measure: MeasureResult) -> Table:
    truths = [column for column in pages.network_columns if column.truth]
    rows = []
    for network, outcome in measure.outcomes.items():
        note = pages.note(network).partition(",")[0]
        rows.append(
            {
                "network": f"{network} ({note})" if note else network,
                "reading": "" if outcome.value is None else f"{outcome.value:.6g}",
                "status": str(outcome.status),
                **{column.label: column.text(network) for column in truths},
                "seconds": f"{_seconds(outcome):.2g}",
                "why": reading_note(outcome),
            }
        )
    numbers = [column.label for column in truths]
    columns = ["network", "reading", "status", *numbers, "seconds"]
    if any(row["why"] for row in rows):
        columns.append("why")
    title = f"{measure.name} on {result.plan.suite.title}"
    return Table(columns, rows, title, ["reading", *numbers, "seconds"])


def _problems(result: RunResult) -> list[Table | str]:
    """Readings without a value of the measures asked for, one row per reason."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for measure in result.asked:
        for network, outcome in measure.outcomes.items():
            if outcome.status is not Status.OK:
                place = (measure.name, str(outcome.status), outcome.reason)
                found.setdefault(place, []).append(network)
    rows = [
        {
            "measure": name,
            "networks": networks[0] if len(networks) == 1 else f"{networks[0]} and {len(networks) - 1} more",
            "status": status,
            "why": reason,
        }
        for (name, status, reason), networks in found.items()
    ]
    columns = ["measure", "networks", "status", "why"]
    return [Table(columns, rows, "readings without a value")] if rows else []


def _show_scores(result: RunResult, pages: Pages) -> None:
    everyone = result.judged.ranked
    shown = _concerning([one for _, one in everyone], result.plan.asked)
    columns = {column.label: column for column in result.evidence.columns}
    counts = result.evidence.counts
    rows = []
    for rank, measure in (everyone[i] for i in shown):
        row: dict[str, Shown] = {
            "measure": f"{_mark(result, measure)}{measure.name}",
            "rank": rank or "",
            "readings": ", ".join(f"{count} {status}" for status, count in measure.statuses),
            "seconds": f"{measure.seconds:.2g}",
        }
        headline = result.judged.headline(measure)
        if (score := measure.score) is not None and headline is not None:
            ends = f"{headline.low:.3f}–{headline.high:.3f}"
            row |= {"sign error": f"{headline.value:.3f}", "95 %": ends}
            if result.judged.claims is not None:
                row["passes"] = passed_words(result.judged.claims.measures[measure.name])
            row |= {_words(label): columns[label].text(score) for label in pages.summary}
            row |= {column.label: column.text(score) for column in counts}
        rows.append(row)
    # What a headline is made of is worth a column only where measures differ in it.
    counted = [column.label for column in counts[:1]]
    complete = len({(row["readings"], *(row.get(label) for label in counted)) for row in rows}) == 1
    passes = [] if result.judged.claims is None else ["passes"]
    names = ["measure", "rank", "sign error", "95 %", *passes, *map(_words, pages.summary)]
    names = fitting_columns([*names, *([] if complete else [*counted, "readings"]), "seconds"], rows)
    print_table(
        names,
        rows,
        title=f"{pages.score_title}, {result.plan.suite.title} (0 perfect, 0.5 a coin)",
        right=[name for name in names if name not in ("measure", "readings", "passes")],
    )
    hidden = len(everyone) - len(shown)
    if hidden:
        click.echo(f"{hidden} more measures between these rows: see the report, or --json")


def _words(label: str) -> str:
    """Headings of two words may break in two."""
    return label.replace("-", " ")


def _concerning(results: list[MeasureResult], asked: frozenset[str]) -> list[int]:
    """Places of the rows to show: the best, the baselines, those asked for and their neighbours."""
    if len(results) <= _FITS or len(asked) >= len(results):
        return list(range(len(results)))
    kept = set(range(_BEST))
    for place, one in enumerate(results):
        if one.name in asked:
            kept |= set(range(place - _NEIGHBOURS, place + _NEIGHBOURS + 1))
        if one.baseline:
            kept.add(place)
    return [place for place in range(len(results)) if place in kept]


def _mark(result: RunResult, measure: MeasureResult) -> str:
    """On a terminal, points at what was asked for where other measures stand beside it."""
    if len(result.plan.asked) == len(result.measures) or not sys.stdout.isatty():
        return ""
    return "→ " if measure.name in result.plan.asked else "  "


def _seconds(outcome: Outcome) -> float:
    return outcome.cost.seconds + outcome.cost.shared_seconds


class ReadingDocument(Struct):
    """A measure on one network, as `--json` has it."""

    subject: str
    status: str
    value: float | None
    detail: Detail
    reason: str
    seconds: float
    shared_seconds: float
    peak_bytes: int
    device: str
    threads: int
    sandbox: str
    output: str
    stored: bool


class MeasureDocument(Struct):
    """A measure of a run, as `--json` has it."""

    name: str
    source: str
    reference: bool
    higher_means: str
    sign_error: Struct | None
    """As the kind of the suite has it (`Kind.score_type`)."""
    readings: list[ReadingDocument]
    rank: int | None
    questions: dict[str, Answer] | None
    """None where nothing can be asked."""
    verdict: list[str] | None
    """The questions that it passes."""


class RunDocument(Struct):
    """What `genbench run --json` says whatever the kind of the suite is."""

    genbench: str
    suite: str
    quick: bool
    store: str
    changes: Toml
    pack: str | None
    evidence: Mapping[str, Struct | Facts]
    asked: list[str]
    measures: list[MeasureDocument]
    baselines: Mapping[str, Baseline]
    cannot_ask: dict[str, str]


def run_document(result: RunResult) -> RunDocument:
    """The run as values of JSON."""
    suite, pack = result.plan.suite, result.plan.evidence.pack
    ranks = {measure.name: rank for rank, measure in result.judged.ranked}
    claims, kind = result.judged.claims, kind_of(suite)
    return RunDocument(
        genbench=__version__,
        suite=suite.name,
        quick=suite.quick,
        store=str(result.store),
        changes=dict(suite.changes),
        pack=None if pack is None else pack.version,
        evidence=result.evidence.known,
        asked=sorted(result.plan.asked),
        measures=[_measure_document(one, ranks[one.name], claims, kind) for one in result.measures],
        baselines={} if claims is None else claims.baselines,
        cannot_ask={} if claims is None else claims.verdict.cannot_ask,
    )


def _measure_document(
    measure: MeasureResult, rank: int | None, claims: Claims | None, kind: Kind
) -> MeasureDocument:
    verdict = None if claims is None else claims.measures[measure.name]
    return MeasureDocument(
        name=measure.name,
        source=str(measure.source),
        reference=measure.reference,
        higher_means=measure.measure.higher_means,
        sign_error=None if measure.score is None else kind.recorded(measure.score),
        readings=[_reading_document(*reading) for reading in measure.outcomes.items()],
        rank=rank,
        questions=None if verdict is None else verdict.questions,
        verdict=None if verdict is None else verdict.verdict,
    )


def _reading_document(network: str, outcome: Outcome) -> ReadingDocument:
    return ReadingDocument(
        subject=network,
        status=str(outcome.status),
        value=outcome.value,
        detail=outcome.detail,
        reason=outcome.reason,
        seconds=outcome.cost.seconds,
        shared_seconds=outcome.cost.shared_seconds,
        peak_bytes=outcome.cost.peak_bytes,
        device=outcome.cost.device,
        threads=outcome.cost.threads,
        sandbox=outcome.cost.sandbox,
        output=outcome.output,
        stored=not outcome.computed,
    )
