"""What the site's figures of a population show, as JSON values; `assets/figures.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from genbench.display.packed import Packed, packed
from genbench.display.scatter import far_apart
from genbench.display.templates import shown_number
from genbench.scoring.population import SHOWN, PopulationScore, ScoreNumber
from genbench.suites.result import MeasureResult

__all__ = [
    "EnvironmentFigure",
    "GapFigure",
    "ScoreTables",
    "environment_errors",
    "gap_scatter",
    "score_tables",
]


class GapFigure(Struct, frozen=True):
    """Readings against gaps, which are in the suite's `runs.js`."""

    x: str
    log: bool
    readings: Packed | list[float | None]


class EnvironmentFigure(Struct, frozen=True):
    """How sign-errors of environments are distributed."""

    groups: dict[str, list[int]]
    """By hyperparameter, in order of size, in thousandths."""
    marks: dict[str, float]
    """What boards say of all together."""


class ScoreTables(Struct, frozen=True):
    """Numbers of a measure's page, drawn as tables by `assets/figures.js`, which knows their headings."""

    environments: tuple[int, int]
    """Kept, and available."""
    scores: list[tuple[str, str]]
    """Value and interval: the headline, then those that `runs.js` names."""
    axes: list[tuple[str, str, str, str, int, int]]
    """Hyperparameter: mean, 90th percentile and maximum of its environments, kept and available."""
    worst: list[tuple[str, str, str, str, str]]
    """Environments: what differs, from – to, everything else, effective pairs, sign-error."""


def gap_scatter(result: MeasureResult, networks: Sequence[str]) -> GapFigure | None:
    """Readings in the order of `networks`; None without two values."""
    values = result.values
    if len(values) < 2:
        return None
    readings = packed([values.get(network) for network in networks])
    return GapFigure(result.name, far_apart(list(values.values())), readings)


def score_tables(score: PopulationScore, most: int) -> ScoreTables:
    """As they are shown.

    Parameters
    ----------
    most : environments that are told of.
    """
    return ScoreTables(
        environments=(score.environments, score.available),
        scores=[
            _with_interval(score.value, score.low, score.high),
            *(_score_texts(score.shown(column)) for column in SHOWN),
        ],
        axes=[
            (
                one.name,
                shown_number(one.mean),
                shown_number(one.p90),
                shown_number(one.max),
                one.kept,
                one.available,
            )
            for one in score.by_hyperparameter()
        ],
        worst=[
            (
                one.hyperparameter,
                f"{one.low_value} – {one.high_value}",
                one.fixed,
                f"{one.n_eff:.1f}",
                f"{one.sign_error:.3f}",
            )
            for one in score.worst[:most]
        ],
    )


def _score_texts(found: ScoreNumber | None) -> tuple[str, str]:
    return ("–", "") if found is None else _with_interval(found.value, found.low, found.high)


def _with_interval(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    ends = "" if low is None else f"{shown_number(low)} – {shown_number(high)}"
    return shown_number(value), ends


def environment_errors(score: PopulationScore, errors: Mapping[str, Sequence[float]]) -> EnvironmentFigure:
    """Sign-errors of the environments of every hyperparameter, and what boards say of all together."""
    shown = {"mean": "mean", "90th percentile": "p90", "max": "max"}
    found = {label: score.number("sign_error", name) for label, name in shown.items()}
    return EnvironmentFigure(
        groups={name: [round(1000 * error) for error in sorted(values)] for name, values in errors.items()},
        marks={
            label: round(number.value, 3)
            for label, number in found.items()
            if number is not None and number.value is not None
        },
    )
