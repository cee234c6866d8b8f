"""The result of a run as tables and as a JSON document."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench import __version__
from genbench.display.tables import fitting_columns, print_table
from genbench.engine.cells import Outcome, Status
from genbench.run.runs import MeasureReport, RunReport, TableScores
from genbench.scoring.practical import PracticalScore
from genbench.scoring.sign_error import SignError
from genbench.testbed.run_tables import concerning, show_practical_readings, show_practical_scores

if TYPE_CHECKING:
    from genbench.scoring.all_scores import TableScores as Board
    from genbench.scoring.population import PopulationScore

__all__ = ["measure_record", "run_record", "show_run"]

_QUICK = "quick run: a small subset, not comparable with full results"
_MOST_READINGS = 60
"""Networks whose readings are listed one by one; more are in the record table."""


def show_run(report: RunReport, table: Path | None = None) -> None:
    """Print the readings of the measures asked for, then every measure's score.

    Parameters
    ----------
    table : where the record table of a population was written.
    """
    asked = [m for m in report.measures if m.measure.name in report.plan.asked]
    testbed = bool(report.families)
    if len(asked) <= 3 and len(report.plan.evidence.subjects) <= _MOST_READINGS:
        for measure in asked:
            (show_practical_readings if testbed else _show_readings)(report, measure)
    else:
        _show_problems(report)
    if testbed:
        marks = {m.measure.name: _mark(report, m) for m in report.measures}
        show_practical_scores(report, marks, {m.measure.name: _counts(m) for m in report.measures})
    elif report.table is not None and report.table.board is not None:
        _show_table_scores(report, report.table.board, table)
    else:
        _show_scores(report)
        if report.table is not None:
            click.echo(f"no scores of the papers: {report.table.not_scored}", err=True)
    if table is not None:
        click.echo(f"table: {table}")
    if report.plan.suite.quick:
        click.echo(_QUICK)
    click.echo(f"store: {report.store}")


def _show_readings(report: RunReport, measure: MeasureReport) -> None:
    rows = []
    for subject, outcome in measure.outcomes.items():
        evidence = report.evidence[subject]
        rows.append(
            {
                "network": subject if evidence.get("converged", True) else f"{subject} (unconverged)",
                "reading": _value(outcome),
                "status": str(outcome.status),
                "gap": f"{evidence['gap']:.4f}" if "gap" in evidence else "",
                "seconds": f"{outcome.cost.seconds + outcome.cost.shared_seconds:.2g}",
                "why": outcome.reason,
            }
        )
    columns = ["network", "reading", "status", "gap", "seconds"]
    if any(row["why"] for row in rows):
        columns.append("why")
    title = f"{measure.measure.name} on {report.plan.suite.title}"
    print_table(columns, rows, title=title, right=["reading", "gap", "seconds"])


def _show_problems(report: RunReport) -> None:
    """Readings without a value of the measures asked for, one row per reason."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for measure in report.measures:
        for subject, outcome in measure.outcomes.items():
            if outcome.status is not Status.OK and measure.measure.name in report.plan.asked:
                place = (measure.measure.name, str(outcome.status), outcome.reason)
                found.setdefault(place, []).append(subject)
    rows = [
        {
            "measure": name,
            "networks": subjects[0] if len(subjects) == 1 else f"{subjects[0]} and {len(subjects) - 1} more",
            "status": status,
            "why": reason,
        }
        for (name, status, reason), subjects in found.items()
    ]
    if rows:
        print_table(["measure", "networks", "status", "why"], rows, title="readings without a value")


def _show_scores(report: RunReport) -> None:
    ranked = sorted(report.measures, key=lambda m: (m.score is None, m.score.value if m.score else 0.0))
    rows = []
    for measure in ranked:
        score = measure.score if isinstance(measure.score, SignError) else None
        rows.append(
            {
                "measure": f"{_mark(report, measure)}{measure.measure.name}",
                "sign-error": "" if score is None else f"{score.value:.3f}",
                "95 %": "" if score is None else f"{score.low:.3f} to {score.high:.3f}",
                "pairs": "" if score is None else score.pairs,
                "readings": _counts(measure),
                "seconds": f"{_seconds(measure):.2g}",
            }
        )
    print_table(
        ["measure", "sign-error", "95 %", "pairs", "readings", "seconds"],
        rows,
        title=f"sign-error against the held-out gap, {report.plan.suite.title} (0 perfect, 0.5 a coin)",
        right=["sign-error", "pairs", "seconds"],
    )


_SUMMARY = ("max", "Ψ IID", "Ψ OOD", "K", "eCMS", "PGDL", "CMS", "90th %")
"""Columns of the summary, those that fit first."""
_WORST = 5


def _show_table_scores(report: RunReport, board: Board, table: Path | None) -> None:
    """The headline of every measure and where those asked for fail; all tables where nobody is watching."""
    _show_summary(report)
    asked = [m for m in report.measures if m.measure.name in report.plan.asked]
    if len(asked) <= 3:
        for measure in asked:
            _show_worst_environments(measure)
    if sys.stdout.isatty():
        click.echo(f"every score: genbench score {table}")
    else:
        from genbench.display.score_tables import score_tables

        for found in score_tables(board):
            right = [c for c in found.columns if c not in ("measure", "fails worst at", "")]
            print_table(found.columns, found.rows, title=found.title, right=right)
    for name, reason in board.skipped.items():
        click.echo(f"{name}: skipped, {reason}", err=True)


def _show_summary(report: RunReport) -> None:
    from genbench.scoring.population import SHOWN, PopulationScore
    from genbench.scoring.ranking import tied_ranks

    scores = [m.score if isinstance(m.score, PopulationScore) else None for m in report.measures]
    everyone = sorted(
        zip(tied_ranks(scores), report.measures, scores, strict=True),
        key=lambda one: (one[2] is None, one[2].value if one[2] else 0.0, one[1].measure.name),
    )
    baselines = {m.measure.name for m in report.measures if m.measure.category == "baseline"}
    shown = concerning([m.measure.name for _, m, _ in everyone], report.plan.asked, baselines)
    columns = {column.label: column for column in SHOWN}
    rows = []
    for rank, measure, score in (everyone[i] for i in shown):
        row: dict[str, object] = {
            "measure": f"{_mark(report, measure)}{measure.measure.name}",
            "rank": rank or "",
            "seconds": f"{_seconds(measure):.2g}",
        }
        if score is not None:
            row |= {"sign error": f"{score.value:.3f}", "95 %": f"{score.low:.3f}–{score.high:.3f}"}
            values = {label: score.shown(columns[label]).get("value") for label in _SUMMARY}
            row |= {label: "–" if value is None else f"{value:.3f}" for label, value in values.items()}
        rows.append(row)
    names = fitting_columns(["measure", "rank", "sign error", "95 %", *_SUMMARY, "seconds"], rows)
    kept = next((score for _, _, score in everyone if score is not None), None)
    where = "" if kept is None else f" over {kept.environments} of {kept.available} environments"
    print_table(
        names,
        rows,
        title=f"mean sign-error{where}, {report.plan.suite.title} (0 perfect, 0.5 a coin)",
        right=names[1:],
    )
    hidden = len(everyone) - len(shown)
    if hidden:
        click.echo(f"{hidden} more measures between these rows: see the report, or --json")


def _show_worst_environments(measure: MeasureReport) -> None:
    from genbench.scoring.population import PopulationScore

    score, name = measure.score, measure.measure.name
    if not isinstance(score, PopulationScore):
        return
    if not score.worst:
        click.echo(f"in no environment does {name} order the gaps wrongly more often than not")
        return
    rows = [
        {
            "sign-error": f"{one.sign_error:.3f}",
            "what changes": f"{one.hyperparameter} {one.low_value} → {one.high_value}",
            "all else": one.fixed,
        }
        for one in score.worst[:_WORST]
    ]
    print_table(list(rows[0]), rows, title=f"where {name} fails worst", right=["sign-error"])


def _mark(report: RunReport, measure: MeasureReport) -> str:
    """On a terminal, points at what was asked for where other measures stand beside it."""
    everything = len(report.plan.asked) == len(report.measures)
    return (
        ""
        if everything or not sys.stdout.isatty()
        else "→ "
        if measure.measure.name in report.plan.asked
        else "  "
    )


def _value(outcome: Outcome) -> str:
    return "" if outcome.value is None else f"{outcome.value:.6g}"


def _counts(measure: MeasureReport) -> str:
    counts = Counter(str(outcome.status) for outcome in measure.outcomes.values())
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def _seconds(measure: MeasureReport) -> float:
    return sum(o.cost.seconds + o.cost.shared_seconds for o in measure.outcomes.values())


def run_record(report: RunReport, table: Path | None = None) -> dict[str, Any]:
    """The run as JSON values."""
    suite = report.plan.suite
    return {
        "genbench": __version__,
        "suite": suite.name,
        "quick": suite.quick,
        "store": str(report.store),
        "changes": dict(suite.changes),
        "pack": _pack(report),
        "evidence": report.evidence,
        "trade_off": {name: family.trade_off for name, family in report.families.items()},
        "asked": sorted(report.plan.asked),
        "measures": [measure_record(measure) for measure in report.measures],
        **({} if report.table is None else _table_record(report.table, table)),
    }


def _table_record(scores: TableScores, table: Path | None) -> dict[str, Any]:
    found = None if scores.board is None else scores.board.scores
    # Missing numbers are null, as in `genbench score --json`.
    plain = None if found is None else found.astype(object).where(found.notna(), None).to_dict("records")
    return {
        "table": None if table is None else str(table),
        "scores": plain,
        "skipped": {} if scores.board is None else scores.board.skipped,
        "not_scored": scores.not_scored or None,
    }


def _pack(report: RunReport) -> str | None:
    evidence = report.plan.evidence
    pack = evidence.pack
    return None if pack is None else pack.version


def measure_record(measure: MeasureReport) -> dict[str, Any]:
    """One measure of a run as JSON values."""
    return {
        "name": measure.measure.name,
        "source": str(measure.source),
        "reference": measure.reference,
        "higher_means": measure.measure.higher_means,
        "sign_error": _score_record(measure.score),
        "readings": [
            {
                "subject": subject,
                "status": str(outcome.status),
                "value": outcome.value,
                "detail": outcome.result.get("detail", {}),
                "reason": outcome.reason,
                "seconds": outcome.cost.seconds,
                "shared_seconds": outcome.cost.shared_seconds,
                "peak_bytes": outcome.cost.peak_bytes,
                "output": outcome.output,
                "stored": not outcome.computed,
            }
            for subject, outcome in measure.outcomes.items()
        ],
    }


def _score_record(score: SignError | PracticalScore | PopulationScore | None) -> dict[str, Any] | None:
    if score is None:
        return None
    return asdict(score) if isinstance(score, SignError) else score.record()
