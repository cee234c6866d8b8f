"""The scores of a record table as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from genbench.display.score_tables import environments_by_measure, losses, score_tables, worst_environments
from genbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

    from genbench.scoring.all_scores import TableScores
    from genbench.scoring.population import WorstEnvironment

__all__ = ["score_page", "write_page"]

_WORST = 8
"""Environments in the drill-down of each measure."""


def write_page(scored: TableScores, path: Path, by_values: Sequence[str] = ()) -> None:
    """Write the page of `score_page` to a file."""
    try:
        path.write_text(score_page(scored, by_values), encoding="utf-8")
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None


def score_page(scored: TableScores, by_values: Sequence[str] = ()) -> str:
    """Tables of every score, the figures of 001 and 002, the CMS table of 000, and the drill-down.

    Parameters
    ----------
    by_values : measures whose sign-errors are drawn by pairs of values; the best one unless given.
    """
    import jinja2

    template = files("genbench.report").joinpath("score_page.tmpl").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    networks = scored.networks
    return environment.from_string(template).render(
        source=Path(networks.source).name,
        facts=_facts(scored),
        tables=score_tables(scored),
        figures=_figures(scored, by_values),
        spreads=_spreads(scored),
        failures=_failures(scored),
        skipped=scored.skipped,
    )


def _facts(scored: TableScores) -> list[tuple[str, str]]:
    networks = scored.networks
    levels = [
        f"{name}: {', '.join(map(str, values))}"
        for name, values in zip(networks.hyperparameters, networks.levels, strict=True)
    ]
    facts = [
        ("runs", f"{len(networks)} of {len(networks.runs)} combinations of hyperparameters"),
        ("hyperparameters", "; ".join(levels)),
        ("targets", ", ".join(networks.targets)),
    ]
    if networks.where:
        facts.insert(0, ("rows", f"{' and '.join(networks.where)}; {networks.not_chosen} others not chosen"))
    if networks.left_out:
        facts.append(("unconverged", f"{networks.left_out} runs left out"))
    if networks.losses:
        facts.append(("rows without a reading", "; ".join(losses(networks))))
    return facts


@dataclass
class _Figures:
    """Drawings, as far as the table has what they show."""

    sign_error: Markup | None = None
    by_values: list[tuple[str, Markup]] = field(default_factory=list)
    """Measure to its sign-errors by pairs of values."""
    noise: Markup | None = None
    kendall: Markup | None = None


@dataclass(frozen=True)
class _Spread:
    """One of the tables of 000."""

    delta: str
    groups: list[str]
    rows: list[tuple[str, list[list[str]]]]
    """Measure to CMS and eCMS, over all and in every group."""


def _figures(scored: TableScores, by_values: Sequence[str]) -> _Figures:
    from markupsafe import Markup

    from genbench.display.figures import inline_svg
    from genbench.display.score_figures import (
        iid_ood_scatter,
        noise_filter_bars,
        sign_error_cdfs,
        value_pair_cdfs,
    )

    drawn = _Figures()
    if scored.environments is not None and not scored.environments.empty:
        summary = scored.scores[scored.scores["score"] == "sign_error"]
        overall = summary[(summary["part"] == "all") & (summary["statistic"] == "mean")]
        measures = list(overall.dropna(subset="value").sort_values("value", kind="stable")["measure"])
        parts = list(dict.fromkeys(summary["part"]))
        figure = sign_error_cdfs(scored.environments, summary, measures, parts)
        drawn.sign_error = Markup(inline_svg(figure, "Sign-error of each measure by hyperparameter"))
        if scored.by_values is not None and scored.options.family == "strict":
            drawn.by_values = [
                (name, Markup(inline_svg(
                    value_pair_cdfs(scored.environments, scored.by_values, name),
                    f"Sign-error of {name} by pairs of values",
                )))
                for name in by_values or measures[:1]
            ]  # fmt: skip
        if scored.noise is not None:
            figure = noise_filter_bars(scored.noise, measures)
            drawn.noise = Markup(inline_svg(figure, "Sign-error with and without the noise filter"))
    kendall = scored.scores[scored.scores["score"] == "kendall"]
    targets = list(scored.networks.targets)
    if len(targets) > 1 and not kendall.empty:
        figure = iid_ood_scatter(kendall, targets[0], targets[1:])
        drawn.kendall = Markup(inline_svg(figure, "Granulated Kendall score, IID against OOD"))
    return drawn


def _spreads(scored: TableScores) -> list[_Spread]:
    """The tables of 000 (Tables 1–3): CMS over eCMS, medians and every group, one table per delta."""
    frame = scored.scores[scored.scores["score"] == "cms"]
    tables = []
    for delta in [part for part in dict.fromkeys(frame["part"]) if "," not in part]:
        own = frame[(frame["part"] == delta) | frame["part"].str.startswith(f"{delta}, ")]
        values = own.pivot(index="measure", columns=["part", "statistic"], values="value")
        parts = list(dict.fromkeys(own["part"]))
        order = values[(delta, "CMS")].sort_values(kind="stable").index
        tables.append(
            _Spread(
                delta=delta.removeprefix("delta="),
                groups=[part.removeprefix(f"{delta}, ") for part in parts[1:]],
                rows=[
                    (name, [[_cell(values, name, part, s) for s in ("CMS", "eCMS")] for part in parts])
                    for name in order
                ],
            )
        )
    return tables


def _cell(values: pd.DataFrame, measure: str, part: str, statistic: str) -> str:
    value = float(values.loc[measure, (part, statistic)])
    return "–" if np.isnan(value) else f"{value:.3f}"


def _failures(scored: TableScores) -> list[tuple[str, list[WorstEnvironment]]]:
    """Per measure, the environments where it fails worst; the measure with the best mean first."""
    rows = environments_by_measure(worst_environments(scored, _WORST))
    if not rows:
        return []
    table = next(t for t in score_tables(scored) if t.score == "sign_error")
    return [(row["measure"], rows[row["measure"]]) for row in table.rows if row["measure"] in rows]
