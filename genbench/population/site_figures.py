"""What the site's figures of a population show, as JSON values; `assets/figures.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from genbench.display.scatter import far_apart
from genbench.scoring.population import PopulationScore
from genbench.suites.result import MeasureResult

__all__ = ["EnvironmentFigure", "GapFigure", "environment_errors", "gap_scatter"]


class GapFigure(Struct, frozen=True):
    """Readings against gaps, which are in the suite's `runs.js`."""

    x: str
    log: bool
    readings: list[float | None]


class EnvironmentFigure(Struct, frozen=True):
    """How sign-errors of environments are distributed."""

    groups: dict[str, list[float]]
    """By hyperparameter, in order of size."""
    marks: dict[str, float]
    """What boards say of all together."""


def gap_scatter(result: MeasureResult, networks: Sequence[str]) -> GapFigure | None:
    """Readings in the order of `networks`; None without two values."""
    values = result.values
    if len(values) < 2:
        return None
    readings = [_significant(values.get(network)) for network in networks]
    return GapFigure(result.name, far_apart(list(values.values())), readings)


def _significant(value: float | None) -> float | None:
    """Five digits, more than a mark on a screen can show; whole numbers without a point, to save bytes."""
    if value is None:
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded


def environment_errors(score: PopulationScore, errors: Mapping[str, Sequence[float]]) -> EnvironmentFigure:
    """Sign-errors of the environments of every hyperparameter, and what boards say of all together."""
    shown = {"mean": "mean", "90th percentile": "p90", "max": "max"}
    found = {label: score.number("sign_error", name) for label, name in shown.items()}
    return EnvironmentFigure(
        groups={name: [round(error, 3) for error in sorted(values)] for name, values in errors.items()},
        marks={
            label: round(number.value, 3)
            for label, number in found.items()
            if number is not None and number.value is not None
        },
    )
