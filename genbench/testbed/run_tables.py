"""The result of a testbed run on a terminal: readings, sign-errors, where the measure failed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click

from genbench.display.tables import print_table
from genbench.run.runs import MeasureReport, RunReport
from genbench.scoring.practical import HEADLINE, PracticalScore
from genbench.scoring.ranking import tied_ranks
from genbench.testbed.cube_tables import short_name

__all__ = ["concerning", "ranked", "show_practical_readings", "show_practical_scores"]

_WORST = 5
_FITS = 24
"""Rows of a table that a person takes in at once; beyond, only what concerns them is shown."""
_BEST = 5
_NEIGHBOURS = 2
_SLICE_NAMES = {"robustness": "robustness", "zero_shot": "zero-shot"}


def show_practical_readings(report: RunReport, measure: MeasureReport) -> None:
    """The readings of one measure beside the errors that they should predict."""
    rows = []
    for subject, outcome in measure.outcomes.items():
        truth = report.evidence[subject]
        rows.append(
            {
                "network": subject,
                "reading": "" if outcome.value is None else f"{outcome.value:.6g}",
                "status": str(outcome.status),
                "robustness": f"{truth['robustness'][HEADLINE]:.3f}",
                "zero-shot": f"{truth['zero_shot'][HEADLINE]:.3f}",
                "seconds": f"{outcome.cost.seconds + outcome.cost.shared_seconds:.2g}",
                "why": outcome.reason,
            }
        )
    columns = ["network", "reading", "status", "robustness", "zero-shot", "seconds"]
    if any(row["why"] for row in rows):
        columns.append("why")
    print_table(
        columns,
        rows,
        title=f"{measure.measure.name} on {report.plan.suite.title}, with the mean error of each slice",
        right=["reading", "robustness", "zero-shot", "seconds"],
    )


def ranked(report: RunReport) -> list[tuple[int | None, MeasureReport, PracticalScore | None]]:
    """Rank, measure and score, best first; measures that the truth cannot tell apart share a rank."""
    scores = [m.score if isinstance(m.score, PracticalScore) else None for m in report.measures]
    found = list(zip(tied_ranks(scores), report.measures, scores, strict=True))
    return sorted(
        found, key=lambda one: (one[2] is None, one[2].value if one[2] else 0.0, one[1].measure.name)
    )


def show_practical_scores(report: RunReport, marks: dict[str, str], counts: dict[str, str]) -> None:
    """Every measure's sign-error, then the pairs on which those asked for went wrong."""
    rows = []
    everyone = ranked(report)
    baselines = {m.measure.name for m in report.measures if m.measure.category == "baseline"}
    shown = concerning([m.measure.name for _, m, _ in everyone], report.plan.asked, baselines)
    for rank, measure, score in (everyone[i] for i in shown):
        name = measure.measure.name
        row: dict[str, Any] = {
            "rank": rank or "",
            "measure": f"{marks[name]}{name}",
            "readings": counts[name],
        }
        if score is not None:
            row |= {
                "sign error": f"{score.value:.3f}",
                "95 %": f"{score.low:.3f}–{score.high:.3f}",
                "noise aware": "" if score.noise_aware is None else f"{score.noise_aware:.3f}",
                "robust": f"{score.slice_value('robustness'):.3f}",
                "zero shot": f"{score.slice_value('zero_shot'):.3f}",
                "pairs": score.pairs,
            }
        row["seconds"] = (
            f"{sum(o.cost.seconds + o.cost.shared_seconds for o in measure.outcomes.values()):.2g}"
        )
        rows.append(row)
    # Headings of two words may break in two; the name stands first, where it is never broken.
    numbers = ["rank", "sign error", "95 %", "noise aware", "robust", "zero shot"]
    complete = len({(row.get("pairs"), row["readings"]) for row in rows}) == 1
    print_table(
        ["measure", *numbers, *([] if complete else ["pairs", "readings"]), "seconds"],
        rows,
        title=f"sign-error against the practical metric, {report.plan.suite.title} (0 perfect, 0.5 a coin)",
        right=[*numbers, "pairs", "seconds"],
    )
    hidden = len(everyone) - len(shown)
    if hidden:
        click.echo(f"{hidden} more measures between these rows: see the report, or --json")
    asked = [m for m in report.measures if m.measure.name in report.plan.asked]
    if len(asked) <= 3:
        for measure in asked:
            if isinstance(measure.score, PracticalScore):
                _show_worst(measure, measure.score)


def concerning(names: list[str], asked: frozenset[str], baselines: Collection[str]) -> list[int]:
    """Places of the rows to show: the best, the baselines, those asked for and their neighbours."""
    if len(names) <= _FITS or len(asked) >= len(names):
        return list(range(len(names)))
    kept = set(range(_BEST))
    for place, name in enumerate(names):
        if name in asked:
            kept |= set(range(place - _NEIGHBOURS, place + _NEIGHBOURS + 1))
        if name in baselines:
            kept.add(place)
    return [place for place in range(len(names)) if place in kept]


def _show_worst(measure: MeasureReport, score: PracticalScore) -> None:
    """Why did it fail here: the wrongly ordered pairs that the evidence is surest of."""
    if not score.worst:
        click.echo(f"{measure.measure.name} orders every pair as the evidence does")
        return
    direction = 1.0 if measure.measure.higher_means == "worse" else -1.0
    rows = [
        {
            "slice": f"{pair.family}, {_SLICE_NAMES[pair.slice]}",
            "better": short_name(pair.better),
            "its error": f"{pair.error_better:.3f}",
            "its reading": f"{direction * pair.reading_better:.3g}",
            "worse": short_name(pair.worse),
            "error": f"{pair.error_worse:.3f}",
            "reading": f"{direction * pair.reading_worse:.3g}",
            "sds": f"{pair.certainty:.1f}",
        }
        for pair in score.worst[:_WORST]
    ]
    print_table(
        list(rows[0]),
        rows,
        title=f"where {measure.measure.name} is wrong: {len(score.worst)} of {2 * score.pairs} judgements, "
        "the surest first (sds: standard deviations between the errors)",
        right=["its error", "its reading", "error", "reading", "sds"],
    )
