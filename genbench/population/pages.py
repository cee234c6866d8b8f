"""How a population looks: gaps, environments, and the scores of the papers."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs, to_builtins

from genbench.display.csv_text import table_text
from genbench.display.scatter import Point, ScatterPanel
from genbench.display.tables import Shown, Table
from genbench.population.overview import EvidencePage, Overview, reasons
from genbench.population.site_figures import (
    EnvironmentFigure,
    GapFigure,
    ScoreTables,
    environment_errors,
    gap_scatter,
    score_tables,
)
from genbench.scoring.population import AxisErrors, PopulationScore, WorstEnvironment, scores_frame
from genbench.suites.pages import NetworkColumn, Pages
from genbench.suites.result import Judged, MeasureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genbench.population.evidence import PopulationEvidence
    from genbench.scoring.all_scores import TableScores

__all__ = ["PopulationPages", "ScoresDocument"]

_WORST_SHOWN = 5
_WORST_TOLD = 10
_CARDS = ("max", "90th %", "Ψ IID", "Ψ OOD", "K")
"""The columns that stand at the top of a measure's page; the others are in its table."""
_TERMINAL = ("max", "Ψ IID", "Ψ OOD", "K", "eCMS", "PGDL", "CMS", "90th %")
"""Columns on a terminal, those that fit first."""


class ScoresDocument(Struct, frozen=True):
    """What `genbench run --json` says of a population: every score, as `genbench score --json` gives it."""

    table: str | None
    """Where the record table was written."""
    scores: list[dict[str, Shown]] | None
    skipped: dict[str, str]
    not_scored: str | None


class Failures(Struct, frozen=True):
    """Where a measure fails, on the page of a run."""

    axes: list[AxisErrors]
    environments: list[WorstEnvironment]


class MeasurePage(Struct, frozen=True, kw_only=True):
    """A measure on the site; without a score, what readings there are."""

    truth: str
    figure: GapFigure | None
    hyperparameters: list[str]
    cards: tuple[str, ...]
    """Columns at the top."""
    reasons: list[tuple[int, str, str]]
    environments: EnvironmentFigure | None = None
    tables: ScoreTables | None = None
    wrong: int = 0
    """Environments in which it is wrong more often than not."""


class PopulationPages(Pages):
    """Of a suite whose truths are gaps."""

    evidence: PopulationEvidence

    truth_name = "gap"
    """In sentences and above columns."""
    truth_axis = "gap: training − held-out accuracy"
    judged_by = "the held-out gap: training minus held-out accuracy"
    scatter_caption = "Lines join pairs that the measure orders wrongly, the furthest apart darkest."
    papers = ("000", "001", "002", "003")
    templates = "genbench.population"
    run_measure_template = "population/run_measure.html.j2"
    evidence_template = "population/evidence.html.j2"
    measure_template = "population/measure.html.j2"

    def __init__(self, evidence: PopulationEvidence, judged: Judged) -> None:
        super().__init__(evidence, judged)
        if evidence.truth != "gap":
            self.truth_name = "calibration error"
            self.truth_axis = "held-out expected calibration error"
            self.judged_by = "the expected calibration error on held-out images"
        # Environments are the same for all measures but for readings that are missing.
        score = next((one.score for one in judged.results if one.score is not None), None)
        if score is not None and score.available:
            self.score_title = f"mean sign-error over {score.environments} of {score.available} environments"
            self.about_scores = (
                "It is the mean over environments: two combinations that differ in one hyperparameter, in "
                f"which the held-out images say surely which {self.truth_name} is larger. The bar is the "
                "95 % interval for another draw of combinations and seeds."
            )
        else:
            self.score_title = f"sign-error against the held-out {self.truth_name}"
            self.about_scores = (
                "It is over all pairs of networks; the bar is the 95 % interval over resampled networks."
            )

    # -- networks ----------------------------------------------------------------------------------------

    @property
    def network_columns(self) -> list[NetworkColumn]:
        """The truth."""

        def truth(network: str) -> str:
            found = self.evidence.truth_of(network)
            return "–" if found is None else f"{found:.3f}"

        return [NetworkColumn(self.truth_name, truth)]

    def truth(self, network: str) -> float | None:
        """Of a network that is scored."""
        return self.evidence.truth_of(network) if self.evidence.facts[network].converged else None

    def note(self, network: str) -> str:
        """Unconverged networks stay in the table, marked, and out of the score."""
        return "" if self.evidence.facts[network].converged else "unconverged, not scored"

    def panels(self, result: MeasureResult) -> list[ScatterPanel]:
        """The networks that are scored, and the wrong pairs with the largest gaps between."""
        points = [
            Point(network, "", value, truth)
            for network, value in result.values.items()
            if (truth := self.truth(network)) is not None
        ]
        wrong = [
            (abs(one.truth - other.truth), one.name, other.name)
            for i, one in enumerate(points)
            for other in points[:i]
            if result.direction * (one.reading - other.reading) * (one.truth - other.truth) < 0
        ]
        pairs = [(one, other) for _, one, other in sorted(wrong, reverse=True)]
        return [ScatterPanel("", self.truth_axis, points, pairs)]

    # -- a run -------------------------------------------------------------------------------------------

    @property
    def summary(self) -> list[str]:
        """The scores of the papers, where there are any."""
        return [label for label in _TERMINAL if label in {c.label for c in self.evidence.columns}]

    def failures(self, result: MeasureResult) -> list[Table | str]:
        """The worst environments."""
        score: PopulationScore | None = result.score
        if score is None or not score.available:
            return []
        if not score.worst:
            ordered = f"order the {self.truth_name}s wrongly more often than not"
            return [f"in no environment does {result.name} {ordered}"]
        rows = [
            {
                "sign-error": f"{one.sign_error:.3f}",
                "what changes": f"{one.hyperparameter} {one.low_value} → {one.high_value}",
                "all else": one.fixed,
            }
            for one in score.worst[:_WORST_SHOWN]
        ]
        return [Table(list(rows[0]), rows, f"where {result.name} fails worst", ["sign-error"])]

    def closing(self, table: Path | None) -> list[Table | str]:
        """The command that shows every score of every measure."""
        return [] if self.judged.detail is None else [f"every score: genbench score {table}"]

    def warnings(self) -> list[str]:
        """Scores without their columns, measures without readings."""
        scored: TableScores | None = self.judged.detail
        skipped = {} if scored is None else scored.skipped
        return [*super().warnings(), *(f"{name}: skipped, {reason}" for name, reason in skipped.items())]

    def document(self, table: Path | None) -> ScoresDocument:
        """Every score."""
        scored: TableScores | None = self.judged.detail
        found = None if scored is None else scored.scores
        # Missing numbers are null.
        plain = None if found is None else found.astype(object).where(found.notna(), None).to_dict("records")
        return ScoresDocument(
            None if table is None else str(table),
            plain,
            {} if scored is None else scored.skipped,
            self.judged.note or None,
        )

    def run_measure(self, result: MeasureResult) -> Failures:
        """Sign-error by hyperparameter, and where it fails."""
        score: PopulationScore | None = result.score
        if score is None or not score.available:
            return Failures([], [])
        return Failures(score.by_hyperparameter(), score.worst)

    # -- the site and the paper kit ----------------------------------------------------------------------

    @cached_property
    def _overview(self) -> Overview:
        return Overview(self.evidence)

    @cached_property
    def _environments(self) -> dict[str, dict[str, list[float]]]:
        """Measure to hyperparameter to the sign-error in every environment kept."""
        from genbench.scoring.robust import sign_error_environments

        scored = [one for one in self.judged.results if one.score]
        if not scored:
            return {}
        found: dict[str, dict[str, list[float]]] = {}
        table = sign_error_environments(self.evidence.network_table(scored))
        for (measure, hyperparameter), part in table.groupby(["measure", "hyperparameter"], sort=False):
            found.setdefault(measure, {})[hyperparameter] = part["sign_error"].tolist()
        return {
            measure: {name: errors[name] for name in self._overview.grid if name in errors}
            for measure, errors in found.items()
        }

    def site_files(self) -> dict[str, bytes]:
        """The networks that every page draws; as a script, because pages from a folder cannot fetch."""
        text = json.dumps(to_builtins(self._overview.runs()), separators=(",", ":"))
        return {"runs.js": f'"use strict";\nconst RUNS = {text};\n'.encode()}

    def measure_page(self, result: MeasureResult) -> MeasurePage:
        """Every score, readings against gaps, and where it fails."""
        score: PopulationScore | None = result.score
        page = MeasurePage(
            truth=self.truth_name,
            figure=gap_scatter(result, self.evidence.networks),
            hyperparameters=list(self._overview.grid),
            cards=_CARDS,
            reasons=reasons(result),
        )
        if score is None:
            return page
        errors = self._environments[result.name]
        return structs.replace(
            page,
            environments=environment_errors(score, errors),
            tables=score_tables(score, _WORST_TOLD),
            wrong=sum(error > 0.5 for values in errors.values() for error in values),
        )

    def evidence_page(self) -> EvidencePage:
        """The grid, its gaps, shifted images, and where the pack comes from."""
        return self._overview.page(self.packed())

    def packed(self) -> list[tuple[str, str]]:
        """With the name of the data set."""
        rows = super().packed()
        data = ("data", str(self.evidence.suite.content()["data"]["dataset"]))
        return [*rows[:2], data, *rows[2:]]

    def board_files(self) -> dict[str, str]:
        """The record table; in the order of names, so that a rank that moves does not move a column."""
        ordered = sorted(self.judged.results, key=lambda one: one.name)
        return {"csv": table_text(self.evidence.table(ordered))}

    def figures(self, result: MeasureResult) -> dict[str, Figure]:
        """Sign-error of all measures by hyperparameter, of this one by pairs of values, of all with and
        without the noise filter (001 Figs. 1, 2, 4), Kendall score IID against OOD (002), gaps.
        """
        from genbench.display.scatter import reading_scatter
        from genbench.display.score_figures import (
            iid_ood_scatter,
            noise_filter_bars,
            sign_error_cdfs,
            value_pair_cdfs,
        )
        from genbench.scoring.ablations import errors_by_values, noise_filter_effect
        from genbench.scoring.robust import sign_error_environments

        scored = [one for one in self.judged.results if one.score is not None]
        frame = scores_frame({one.name: one.score.scores for one in scored})
        networks = self.evidence.network_table(scored)
        summary = frame[frame["score"] == "sign_error"]
        kendall = frame[frame["score"] == "kendall"]
        parts = list(dict.fromkeys(summary["part"]))
        targets = list(networks.targets)
        names = [one.name for one in scored]
        environments = sign_error_environments(networks)
        figures = {
            "sign-errors.pdf": sign_error_cdfs(environments, summary, names, parts),
            "noise-filter.pdf": noise_filter_bars(noise_filter_effect(networks), names),
        }
        if result.score is not None:
            by_values = errors_by_values(networks.select([result.name]), environments)
            figures["pairs-of-values.pdf"] = value_pair_cdfs(environments, by_values, result.name)
        if len(targets) > 1:
            figures["iid-ood.pdf"] = iid_ood_scatter(kendall, targets[0], targets[1:])
        axis = next(iter(self._overview.grid))
        rows = self.evidence.rows
        points = [
            Point("", f"{axis}={rows[network][f'hp.{axis}']}", value, truth)
            for network, value in result.values.items()
            if (truth := self.truth(network)) is not None
        ]
        if points:
            label = f"{result.name} (higher should mean {result.measure.higher_means})"
            panel = ScatterPanel("", self.truth_axis, points, [])
            figures[f"{result.name}.pdf"] = reading_scatter(label, [panel])
        return figures
