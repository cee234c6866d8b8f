"""The scores of a record table as tables of text, for the terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from genbench.scoring.all_scores import SCORES, TableScores
from genbench.scoring.population import ScoreNumber, WorstEnvironment

if TYPE_CHECKING:
    import pandas as pd

    from genbench.scoring.network_table import NetworkTable

__all__ = ["ScoreTable", "environments_by_measure", "losses", "score_tables", "worst_environments"]

_MOST_TARGETS = 4


@dataclass(frozen=True)
class ScoreTable:
    """One table: rows by column name, best measure first."""

    score: str
    title: str
    columns: list[str]
    rows: list[dict[str, str]]
    note: str = ""


def score_tables(scored: TableScores) -> list[ScoreTable]:
    """One table per score that was computed."""
    makers = {
        "sign_error": _sign_error,
        "affine_oracle": _affine_oracle,
        "kendall": _kendall,
        "independence": _independence,
        "pgdl": _pgdl,
        "cms": _cms,
    }
    present = set(scored.scores["score"])
    return [makers[name](scored, _of(scored, name)) for name in SCORES if name in present]


def losses(networks: NetworkTable) -> list[str]:
    """Which rows are left out for want of a reading, why, and for which columns; one sentence each."""
    sentences = []
    kinds: dict[tuple[int, int], list[str]] = {}
    for loss in networks.losses:
        kinds.setdefault((loss.rows, loss.infinite), []).append(loss.column)
    for (rows, infinite), columns in kinds.items():
        why = (
            "infinite"
            if infinite == rows
            else "missing"
            if not infinite
            else f"missing or ({infinite}) infinite"
        )
        held = "row holds" if rows == 1 else "rows hold"
        sentences.append(f"{rows} {held} no finite reading ({why}) in {', '.join(columns)}")
    if sentences and networks.incomplete:
        sentences.append(f"these {networks.incomplete} rows are left out for all measures")
    elif sentences:
        sentences.append("these rows are left out for these measures alone; --complete-rows does so for all")
    return sentences


def worst_environments(scored: TableScores, count: int) -> pd.DataFrame | None:
    """The `count` environments of each measure where it fails worst."""
    if scored.environments is None:
        return None
    return scored.environments.groupby("measure", sort=False).head(count)


def environments_by_measure(worst: pd.DataFrame | None) -> dict[str, list[WorstEnvironment]]:
    """Rows of `worst_environments`; their order stays."""
    found: dict[str, list[WorstEnvironment]] = {}
    if worst is not None:
        fields = ["measure", *WorstEnvironment.__dataclass_fields__]
        for measure, *row in worst[fields].itertuples(index=False, name=None):
            found.setdefault(str(measure), []).append(WorstEnvironment(*row))
    return found


class _Numbers:
    """Cells of one score by measure, target, part and statistic."""

    def __init__(self, frame: pd.DataFrame, *, resampled: bool) -> None:
        self.frame = frame
        self.resampled = resampled
        self.rows: dict[tuple[str, str, str, str], ScoreNumber] = {}
        fields = ["measure", *ScoreNumber._fields]
        for measure, *row in frame[fields].itertuples(index=False, name=None):
            number = ScoreNumber(*row)
            self.rows[measure, number.target, number.part, number.statistic] = number
        self.measures = list(dict.fromkeys(frame["measure"]))
        self.targets = list(dict.fromkeys(frame["target"]))
        self.parts = list(dict.fromkeys(frame["part"]))

    def row(self, measure: str, part: str, statistic: str, target: str = "") -> ScoreNumber:
        """One number; where there is none, one that is not a number."""
        target = target or self.targets[0]
        found = self.rows.get((measure, target, part, statistic))
        return found or ScoreNumber("", target, part, statistic, np.nan, np.nan, np.nan, 0, 0, 0, 0, 0, "")

    def value(self, measure: str, part: str, statistic: str, target: str = "") -> float:
        return _float(self.row(measure, part, statistic, target).value)

    def text(self, measure: str, part: str, statistic: str, target: str = "", digits: int = 3) -> str:
        """`0.671 [0.575, 1.000]`; a dash where there is no number."""
        row = self.row(measure, part, statistic, target)
        value, low, high = map(_float, (row.value, row.low, row.high))
        if np.isnan(value):
            return "–"
        ends = "" if np.isnan(low) else f" [{_number(low, digits)}, {_number(high, digits)}]"
        return _number(value, digits) + ends

    def resamples(self) -> str:
        counts = sorted({int(n) for n in self.frame["resamples"] if n > 0})
        if not counts:
            return "; no intervals: resampling would take minutes" if self.resampled else ""
        return "; 95 % intervals from " + " or ".join(map(str, counts)) + " resamples"


def _float(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _of(scored: TableScores, score: str) -> _Numbers:
    chosen = scored.scores[scored.scores["score"] == score]
    return _Numbers(chosen, resampled=scored.options.resamples > 0)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.3g}"


def _ordered(numbers: _Numbers, part: str, statistic: str, *, best: str, target: str = "") -> list[str]:
    """Measures, the best first; those without a number last."""
    sign = 1.0 if best == "low" else -1.0

    def key(measure: str) -> tuple[bool, float]:
        value = numbers.value(measure, part, statistic, target)
        return bool(np.isnan(value)), sign * value if not np.isnan(value) else 0.0

    return sorted(numbers.measures, key=key)


def _sign_error(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    where = environments_by_measure(worst_environments(scored, 1))
    rows = []
    for measure in _ordered(numbers, "all", "mean", best="low"):
        found = next(iter(where.get(measure, ())), None)
        row = numbers.row(measure, "all", "max")
        rows.append(
            {
                "measure": measure,
                "robust (max)": numbers.text(measure, "all", "max"),
                "90th percentile": numbers.text(measure, "all", "p90"),
                "mean": numbers.text(measure, "all", "mean"),
                "kept": f"{row.count}/{row.available}",
                "fails worst at": _environment(found) if found else row.note,
            }
        )
    family = "" if scored.options.family == "strict" else ", pooled family"
    noise = "" if scored.options.noise_filter else ", no noise filter"
    return ScoreTable(
        "sign_error",
        f"Robust sign-error against {numbers.targets[0]}{family}{noise}",
        ["measure", "robust (max)", "mean", "90th percentile", "kept", "fails worst at"],
        rows,
        f"0 is perfect, 0.5 a coin, 1 always wrong{numbers.resamples()}"
        f"{' (a maximum lies high in resamples)' if numbers.resamples() else ''}",
    )


def _environment(one: WorstEnvironment) -> str:
    fixed = f"; {one.fixed}" if one.fixed else ""
    return f"{one.hyperparameter} {one.low_value} → {one.high_value}{fixed}"


def _affine_oracle(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    titles = {
        "combos": "robust RMSE",
        "one_varies": "one hyperparameter varies",
        "one_fixed": "one hyperparameter fixed",
    }
    rows = []
    for measure in _ordered(numbers, "combos", "robust_rmse", best="low"):
        row = {"measure": measure}
        row |= {title: numbers.text(measure, part, "robust_rmse", digits=4) for part, title in titles.items()}
        row["mean RMSE"] = numbers.text(measure, "combos", "mean_rmse", digits=4)
        rows.append(row)
    gaps = numbers.frame.loc[numbers.frame["statistic"] == "duality_gap", "value"]
    return ScoreTable(
        "affine_oracle",
        f"Affine oracle of {numbers.targets[0]}: a·C + b, a ≥ 0",
        ["measure", "robust RMSE", "mean RMSE", "one hyperparameter varies", "one hyperparameter fixed"],
        rows,
        f"no fit can be better by more than {max(float(gaps.max()), 0.0):.0e} (duality gap); "
        f"`bias only` ignores the measure{numbers.resamples()}",
    )


def _kendall(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    targets = numbers.targets[:_MOST_TARGETS]
    axes = [part for part in numbers.parts if part != "all"]
    rows = []
    for measure in _ordered(numbers, "all", "Psi", best="high"):
        row = {"measure": measure}
        row |= {f"Ψ {target}": numbers.text(measure, "all", "Psi", target) for target in targets}
        row |= {f"ψ {axis}": _number_or_dash(numbers.value(measure, axis, "psi")) for axis in axes}
        row["τ"] = numbers.text(measure, "all", "tau")
        rows.append(row)
    left = len(numbers.targets) - len(targets)
    more = f"; {left} more targets with --json or --csv" if left else ""
    more += "" if axes else "; no Ψ, because no two runs share a seed and differ in one hyperparameter"
    return ScoreTable(
        "kendall",
        "Granulated Kendall score",
        ["measure", *(f"Ψ {target}" for target in targets), *(f"ψ {axis}" for axis in axes), "τ"],
        rows,
        "1 is perfect, 0 a coin, −1 always wrong; "
        f"ψ and τ of {numbers.targets[0]}{numbers.resamples()}{more}",
    )


def _number_or_dash(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _independence(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    rows = []
    for measure in _ordered(numbers, "all", "K", best="high"):
        rows.append(
            {
                "measure": measure,
                "K": numbers.text(measure, "all", "K"),
                "direction (τ)": f"{numbers.value(measure, 'all', 'tau'):+.3f}",
                "": numbers.row(measure, "all", "K").note,
            }
        )
    return ScoreTable(
        "independence",
        f"Conditional-independence score K against {numbers.targets[0]}",
        ["measure", "K", "direction (τ)", ""],
        rows,
        f"0 says nothing beyond two hyperparameters; blind to direction{numbers.resamples()}",
    )


def _pgdl(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    rows = [
        {
            "measure": measure,
            "PGDL score": numbers.text(measure, "all", "pgdl", digits=2),
            "": numbers.row(measure, "all", "pgdl").note,
        }
        for measure in _ordered(numbers, "all", "pgdl", best="high")
    ]
    return ScoreTable(
        "pgdl",
        f"PGDL score against {numbers.targets[0]}",
        ["measure", "PGDL score", ""],
        rows,
        f"of 100; blind to direction{numbers.resamples()}",
    )


def _cms(scored: TableScores, numbers: _Numbers) -> ScoreTable:
    deltas = [part for part in numbers.parts if "," not in part]
    groups = {numbers.row(m, d, "CMS").available for m in numbers.measures for d in deltas}
    rows = []
    for measure in _ordered(numbers, deltas[0], "CMS", best="low"):
        row = {"measure": measure}
        for delta in deltas:
            size = delta.removeprefix("delta=")
            row[f"CMS {size}"] = numbers.text(measure, delta, "CMS")
            row[f"eCMS {size}"] = numbers.text(measure, delta, "eCMS")
        row[""] = numbers.row(measure, deltas[0], "CMS").note
        rows.append(row)
    columns = [column for column in rows[0] if column or any(row[""] for row in rows)]
    return ScoreTable(
        "cms",
        "CMS and eCMS: spread of log C between runs of equal test error",
        columns,
        rows,
        f"0 is stable, 0.69 a factor of two; medians over {max(groups)} "
        f"{'group' if max(groups) == 1 else 'groups'}{numbers.resamples()}",
    )
