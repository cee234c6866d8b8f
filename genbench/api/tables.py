"""`genbench.score`: measures in a table of networks that were trained elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from genbench.scoring.all_scores import Options, ScoreProgress, TableScores
    from genbench.scoring.board_baselines import Baseline
    from genbench.scoring.columns import Columns
    from genbench.scoring.network_table import NetworkTable
    from genbench.scoring.verdicts import BoardVerdict

__all__ = ["ScoredTable", "read_networks", "score", "score_networks"]


def score(
    table: pd.DataFrame | str | Path,
    *,
    scores: str | Sequence[str] = (),
    columns: Columns | str | Path | None = None,
    where: Iterable[str] = (),
    keep_unconverged: bool = False,
    complete_rows: bool = False,
    combine: Iterable[str] = (),
    options: Options | None = None,
    progress: ScoreProgress | None = None,
) -> ScoredTable:
    """Score the measures in a table with one row per trained network: what `genbench score` does.

        found = genbench.score("runs.csv")
        found.summary

    Parameters
    ----------
    table : a pandas table, or a CSV or Parquet file: hyperparameters (`hp.…`), `seed`, `gap` and measures
        (`complexity.…`), and if there are any `test_error`, `test_size`, `gap_ood…`, `converged`.
    scores : only these: sign_error, affine_oracle, kendall, independence, pgdl, cms.
    columns : other names of columns, as `genbench.scoring.Columns` or a TOML file.
    where : only rows that meet these, as "dataset=svhn".
    keep_unconverged : score rows that are marked unconverged too.
    complete_rows : leave out a row for all measures if one has no reading.
    combine : combinations of measures to add, as "avg:path_norm,sharpness".
    options : how to score; `genbench.scoring.all_scores.Options`.
    """
    networks = read_networks(
        table,
        columns=columns,
        where=where,
        keep_unconverged=keep_unconverged,
        complete_rows=complete_rows,
        combine=combine,
    )
    wanted = (scores,) if isinstance(scores, str) else tuple(scores)
    return score_networks(networks, wanted, options, progress)


def score_networks(
    networks: NetworkTable,
    scores: Sequence[str] = (),
    options: Options | None = None,
    progress: ScoreProgress | None = None,
) -> ScoredTable:
    """Score a table that is read already."""
    from genbench.scoring.all_scores import score_table

    # More than two at a time would only wait for memory.
    workers = min(2, os.cpu_count() or 1)
    return ScoredTable(score_table(networks, scores, options, progress, workers))


def read_networks(
    table: pd.DataFrame | str | Path,
    *,
    columns: Columns | str | Path | None = None,
    where: Iterable[str] = (),
    keep_unconverged: bool = False,
    complete_rows: bool = False,
    combine: Iterable[str] = (),
) -> NetworkTable:
    """The table, checked; a wrong cell raises a `UserError` that names its row and column."""
    from genbench.plugin.registry import load_registry
    from genbench.scoring.columns import read_columns, short_name
    from genbench.scoring.combine import METHODS, add_combination
    from genbench.scoring.table_files import read_table, table_from_frame
    from genbench.scoring.where import read_condition

    mapping = read_columns(Path(columns)) if isinstance(columns, (str, Path)) else columns
    known = {name: entry.item for name, entry in load_registry().measures.items()}
    conditions = [read_condition(text) for text in where]
    if isinstance(table, (str, Path)):
        networks = read_table(
            Path(table), mapping, known_measures=known, keep_unconverged=keep_unconverged, where=conditions
        )
    else:
        networks = table_from_frame(
            table, mapping, known_measures=known, keep_unconverged=keep_unconverged, where=conditions
        )
    for text in combine:
        method, colon, names = text.partition(":")
        if not colon or method.lower() not in METHODS:
            raise UserError(f"--combine {text!r} is not METHOD:A,B with METHOD one of {', '.join(METHODS)}")
        chosen = tuple(short_name(name.strip()) for name in names.split(",") if name.strip())
        networks = add_combination(networks, method.lower(), chosen)
    return networks.complete() if complete_rows else networks


class ScoredTable:
    """Every score of the measures in a table, as tables, figures and a page."""

    def __init__(self, result: TableScores) -> None:
        self.result = result
        """All of it, as the command line has it."""

    @property
    def measures(self) -> list[str]:
        """Those that were scored."""
        return list(self.result.networks.measures)

    @property
    def scores(self) -> pd.DataFrame:
        """Tidy: one number per row, with its interval; columns as in `genbench score --csv`."""
        return self.result.scores.copy()

    @property
    def environments(self) -> pd.DataFrame | None:
        """One row per measure and environment, worst first; None without the sign-error."""
        found = self.result.environments
        return None if found is None else found.copy()

    @property
    def skipped(self) -> dict[str, str]:
        """Scores that the table has no columns for and measures without readings, with the reason."""
        return dict(self.result.skipped)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per measure, one column per score: its headline."""
        import pandas as pd

        from genbench.scoring.population import SHOWN, Column

        mean = Column("sign-error", "Mean over environments of the sign-error", "sign_error", "mean")
        frame = self.result.scores
        truth = self.result.options.target or next(iter(self.result.networks.targets))
        columns = {}
        for column in (mean, *SHOWN):
            target = {"gap": truth, "ood": self._shifted}.get(column.target, column.target)
            chosen = frame[
                (frame["score"] == column.score)
                & (frame["target"] == target)
                & (frame["part"] == column.part)
                & (frame["statistic"] == column.statistic)
            ]
            if len(chosen):
                columns[column.label] = chosen.set_index("measure")["value"]
        found = pd.DataFrame(columns)
        found.index.name = "measure"
        return found.sort_values("sign-error", kind="stable") if "sign-error" in found else found

    @property
    def _shifted(self) -> str:
        """The gap to shifted images that stands for all of them."""
        shifts = [name for name in self.result.networks.targets if name.startswith("gap_ood")]
        return "gap_ood_corrupted" if "gap_ood_corrupted" in shifts else next(iter(shifts), "")

    @cached_property
    def questions(self) -> tuple[BoardVerdict, dict[str, Baseline]]:
        """The four questions that the table's columns allow, and what the baselines reach."""
        from genbench.scoring.board_baselines import judge_baselines
        from genbench.scoring.table_networks import table_networks
        from genbench.scoring.verdicts import judge

        networks = self.result.networks
        known = table_networks(networks, target=self.result.options.target)
        readings = dict(zip(networks.measures, networks.readings.T, strict=True))
        return judge(known, readings), judge_baselines(known, readings)

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row per measure and baseline, best first: answers to the four questions, and those passed.

        An answer is a sign-error; none where the table cannot ask. Baselines are asked nothing but the first.
        """
        import pandas as pd

        board, baselines = self.questions
        rows = [
            {
                "measure": name,
                "baseline": False,
                "rank": one.rank,
                "low": one.questions["chance"].low,
                "high": one.questions["chance"].high,
                **{question: answer.value for question, answer in one.questions.items()},
                "passes": " ".join(one.verdict),
            }
            for name, one in board.measures.items()
        ] + [
            {
                "measure": name,
                "baseline": True,
                "low": one.low,
                "high": one.high,
                "chance": one.sign_error,
                "passes": "",
            }
            for name, one in baselines.items()
        ]
        return pd.DataFrame(rows).set_index("measure").sort_values("chance", kind="stable")

    def figures(self) -> dict[str, Figure]:
        """Sign-errors of all measures, and what the noise filter does to them (001 Figs. 1 and 4)."""
        from genbench.display.score_figures import noise_filter_bars, sign_error_cdfs

        figures: dict[str, Figure] = {}
        environments, noise = self.result.environments, self.result.noise
        if environments is not None:
            summary = self.result.scores[self.result.scores["score"] == "sign_error"]
            parts = list(dict.fromkeys(summary["part"]))
            figures["sign-errors"] = sign_error_cdfs(environments, summary, self.measures, parts)
        if noise is not None:
            figures["noise-filter"] = noise_filter_bars(noise, self.measures)
        return figures

    def report(self, path: str | Path, by_values: Sequence[str] = ()) -> Path:
        """Write the page with all figures; returns where it is."""
        from genbench.report.score_page import write_page

        write_page(self.result, Path(path), tuple(by_values))
        return Path(path)

    def __repr__(self) -> str:
        return f"<scores of {len(self.measures)} measures on {len(self.result.networks)} networks>"

    def _repr_html_(self) -> str:
        from genbench.api.views import scored_view

        return scored_view(self)
