"""Every score of one measure on a population, and the one that boards rank by.

The headline is the mean over environments of the sign-error (001): an environment changes one hyperparameter
and nothing else, and only those count in which the held-out images say surely which gap is larger. The
robust sign-error, the maximum, stands beside it. Environments need several seeds; where there are none,
`pair_scores` gives the plain sign-error over all pairs of networks (004 Eq. 7) in their place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import RESAMPLES, interval
from genbench.scoring.ranking import differ_surely
from genbench.scoring.tidy import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from genbench.scoring.all_scores import TableScores
    from genbench.scoring.network_table import NetworkTable

__all__ = [
    "SHOWN",
    "Column",
    "PopulationScore",
    "ScoreNumber",
    "WorstEnvironment",
    "pair_scores",
    "population_scores",
    "scores_frame",
]

_MOST_WORST = 20


class ScoreNumber(NamedTuple):
    """A number of `genbench score`, where the measure is known: a row of its tidy table."""

    score: str
    target: str
    part: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None
    count: int  # type: ignore[assignment]  # the column has the name of a method of tuples
    available: int
    rows: int
    dropped: int
    resamples: int
    note: str


@dataclass(frozen=True)
class Column:
    """A number that tables show beside the headline."""

    label: str
    about: str
    score: str
    statistic: str
    part: str = "all"
    target: str = "gap"
    """The gap stands for whatever measures are judged by."""


SHOWN = (
    Column("max", "Robust sign-error: the worst environment (001)", "sign_error", "max"),
    Column("90th %", "90th percentile over environments of the sign-error (001)", "sign_error", "p90"),
    Column("Ψ IID", "Granulated Kendall score of the gap: 1 perfect, 0 a coin (002)", "kendall", "Psi"),
    Column("Ψ OOD", "The same against the gap to shifted images (002)", "kendall", "Psi", target="ood"),
    Column("K", "Says more than any two hyperparameters: 0 nothing, 1 everything (002)", "independence", "K"),
    Column("PGDL", "Score of the PGDL competition, of 100 (003)", "pgdl", "pgdl"),
    Column("CMS", "Spread of log C at equal test error, 2 points apart: 0 is stable (000)", "cms", "CMS",
           "delta=0.02", "test_error"),
    Column("eCMS", "The part of CMS that seeds do not explain (000)", "cms", "eCMS", "delta=0.02",
           "test_error"),
)  # fmt: skip


@dataclass(frozen=True)
class WorstEnvironment:
    """Two combinations of hyperparameters whose gaps a measure orders wrongly more often than not."""

    hyperparameter: str
    low_value: str
    high_value: str
    fixed: str
    n_eff: float
    sign_error: float


@dataclass(frozen=True)
class AxisErrors:
    """The sign-error where one hyperparameter differs."""

    name: str
    kept: int
    available: int
    mean: float | None
    """None where no environment is kept; so are the others."""
    p90: float | None
    max: float | None


@dataclass(frozen=True)
class PopulationScore:
    """All that a record table says of one measure."""

    value: float
    """Mean over environments of the sign-error; without environments, the sign-error over all pairs."""
    low: float
    high: float
    environments: int
    """Kept by the noise filter; 0 if the score is over all pairs."""
    available: int
    dropped: int
    """Networks without a reading."""
    scores: list[ScoreNumber]
    """Every number."""
    worst: list[WorstEnvironment]
    resampled: NDArray[np.float64] = field(repr=False, compare=False)
    """`value` in every resample of the seeds, drawn alike for all measures with the same readings; of the
    networks, drawn alike for all measures, if the score is over all pairs."""

    def ties_with(self, other: PopulationScore) -> bool:
        """Whether the 95 % interval of the paired difference includes 0."""
        return not differ_surely(self.resampled, other.resampled)

    @property
    def truth(self) -> str:
        """The target of the headline."""
        return next((one.target for one in self.scores if one.score == "sign_error"), "gap")

    def number(self, score: str, statistic: str, part: str = "all", target: str = "") -> ScoreNumber | None:
        """One number with its interval, against the truth unless a target is given; None if there is none."""
        wanted = (score, target or self.truth, part, statistic)
        return next((one for one in self.scores if one[:4] == wanted), None)

    def by_hyperparameter(self) -> list[AxisErrors]:
        """The sign-error over the environments of every hyperparameter, in the table's order."""
        means = [one for one in self.scores if one.score == "sign_error" and one.statistic == "mean"]
        return [self._axis(one) for one in means if one.part != "all"]

    def _axis(self, mean: ScoreNumber) -> AxisErrors:
        p90, largest = (self.number("sign_error", name, mean.part) for name in ("p90", "max"))
        return AxisErrors(
            mean.part,
            mean.count,
            mean.available,
            mean.value,
            None if p90 is None else p90.value,
            None if largest is None else largest.value,
        )

    def shown(self, column: Column) -> ScoreNumber | None:
        """The number of a column of tables; `ood` is the mean over all shifts, where there is one."""
        target = self.truth if column.target == "gap" else column.target
        if target == "ood":
            known = ("gap", self.truth)
            shifts = [one.target for one in self.scores if one.score == "kendall" and one.target not in known]
            target = "gap_ood_corrupted" if "gap_ood_corrupted" in shifts else next(iter(shifts), "none")
        return self.number(column.score, column.statistic, column.part, target)


def population_scores(
    scored: TableScores, measures: Collection[str] | None = None
) -> dict[str, PopulationScore]:
    """Measure to its scores; those without a headline, because no environment is sure, are left out.

    Parameters
    ----------
    measures : only these; all of the table unless given.
    """
    from genbench.scoring.robust import resampled_means

    if scored.environments is None:
        return {}
    chosen = [name for name in scored.networks.measures if measures is None or name in measures]
    resampled = resampled_means(
        scored.networks.select(chosen),
        target=scored.options.target,
        resamples=scored.options.resamples,
        seed=scored.options.seed,
    )
    numbers: dict[str, list[ScoreNumber]] = {}
    columns = [_plain_column(scored.scores[field]) for field in ScoreNumber._fields]
    for name, row in zip(scored.scores["measure"], zip(*columns, strict=True), strict=True):
        numbers.setdefault(name, []).append(ScoreNumber(*row))
    worst = dict(list(scored.environments.groupby("measure", sort=False)))
    return {
        name: _score(numbers[name], worst[name], resampled[name])
        for name in chosen
        if name in resampled and name in numbers and name in worst
    }


def _score(
    rows: list[ScoreNumber], environments: pd.DataFrame, resampled: NDArray[np.float64]
) -> PopulationScore:
    mean = next(r for r in rows if (r.score, r.part, r.statistic) == ("sign_error", "all", "mean"))
    # Whoever was resampled has environments: a mean and its interval.
    assert mean.value is not None
    assert mean.low is not None
    assert mean.high is not None
    wrong = environments[environments["sign_error"] > 0.5].head(_MOST_WORST)
    return PopulationScore(
        value=mean.value,
        low=mean.low,
        high=mean.high,
        environments=mean.count,
        available=mean.available,
        dropped=mean.dropped,
        scores=rows,
        worst=[
            WorstEnvironment(**{key: _plain(row[key]) for key in WorstEnvironment.__annotations__})
            for row in wrong.to_dict("records")
        ],
        resampled=resampled,
    )


def pair_scores(
    networks: NetworkTable, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, PopulationScore]:
    """Measure to its sign-error over all unordered pairs of networks, for tables without several seeds.

        SE = mean over pairs of ½ (1 − sgn(d − d')·sgn(C − C'))        (004 Eq. 7; a tie counts ½)

    d is the first target. The interval is a bootstrap over networks: a resample draws as many as there are,
    with replacement, the same for all measures, and a network is never paired with its own copy. Measures
    with fewer than two readings are left out.
    """
    truth = networks.target()
    count = len(networks)
    if count < 2:
        return {}
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    larger = np.sign(truth[:, None] - truth)
    found = {}
    for name, readings in zip(networks.measures, networks.readings.T, strict=True):
        kept = np.isfinite(readings) & np.isfinite(truth)
        if kept.sum() < 2:
            continue
        values = readings[kept]
        agreement = larger[np.ix_(kept, kept)] * np.sign(values[:, None] - values)
        # One row per resample, and first the table itself: every network once.
        times = np.vstack([np.ones(len(values)), drawn[:, kept]])
        # Both over ordered pairs; the diagonal, a network and itself, agrees by 0 and has no weight.
        total = times.sum(axis=1) ** 2 - (times**2).sum(axis=1)
        mean = np.divide(
            np.einsum("ri,ri->r", times @ agreement, times), total, out=np.zeros(len(times)), where=total > 0
        )
        # A resample in which no two networks are left orders nothing: a mean of 0, a coin.
        value, *resampled = 0.5 * (1 - mean)
        low, high = interval(resampled)
        found[name] = PopulationScore(
            value=float(value),
            low=float(np.fmin(low, value)),
            high=float(np.fmax(high, value)),
            environments=0,
            available=0,
            dropped=int((~kept).sum()),
            scores=[],
            worst=[],
            resampled=np.asarray(resampled),
        )
    return found


def _plain(value: Any) -> Any:
    """As JSON knows it: no NumPy types, null for a missing number."""
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value


def _plain_column(column: pd.Series[Any]) -> list[Any]:
    """`_plain` of every value, a whole column of numbers at once."""
    if column.dtype.kind == "f":
        values = column.to_numpy()
        plain = values.astype(object)
        plain[~np.isfinite(values)] = None
        return list(plain.tolist())
    return column.tolist() if column.dtype.kind in "iub" else [_plain(value) for value in column]


def scores_frame(scores: Mapping[str, Iterable[Sequence[Any]]]) -> pd.DataFrame:
    """The tidy table that `scores` of recorded measures came from."""
    import pandas as pd

    rows = [(row[0], name, *row[1:]) for name, numbers in scores.items() for row in numbers]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numeric = ["value", "low", "high"]
    frame[numeric] = frame[numeric].astype(np.float64)
    return frame
