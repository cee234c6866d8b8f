"""What the site's figures of a testbed show, as JSON values; `assets/figures.js` draws them with plotly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from genbench.display.names import short_count, short_name
from genbench.display.scatter import MOST_LINES, far_apart
from genbench.scoring.practical import SLICE_NAMES, SLICES, JudgedModel
from genbench.suites.result import MeasureResult
from genbench.testbed.cube_figures import STATISTIC_NAMES
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = [
    "CubeFigure",
    "ScatterFigure",
    "cube_figures",
    "scatter",
]

_AXES = {"ssim": "SSIM", "zero_shot": "zero-shot share", "weights": "model size (weights)"}


class Mark(Struct, frozen=True):
    """A network."""

    x: float
    y: float
    name: str


class Panel(Struct, frozen=True):
    """A slice."""

    title: str
    groups: dict[str, list[Mark]]
    """By family."""
    wrong: list[list[list[float]]]
    """Pairs of places that a line joins."""


class ScatterFigure(Struct, frozen=True):
    """Readings against errors."""

    x: str
    y: str
    log: bool
    panels: list[Panel]


class MapStar(Struct, frozen=True):
    """The trade-off point in the heat map of a model."""

    model: int
    ssim: float
    zero_shot: float


class CurveStar(Struct, frozen=True):
    """The trade-off point on the curves of error and of kappa."""

    x: float
    y: list[float]


class Marginal(Struct, frozen=True):
    """Statistics along an axis."""

    axis: str
    levels: list[float]
    curves: dict[str, list[float]]
    star: CurveStar


class CubeFigure(Struct, frozen=True):
    """The cube of a family."""

    ssim: list[float]
    zero_shot: list[float]
    models: list[str]
    maps: dict[str, list[list[list[float]]]]
    """Statistic to its value by model, zero-shot share and SSIM."""
    star: MapStar
    marginals: list[Marginal]


def scatter(result: MeasureResult, known: Mapping[str, JudgedModel]) -> ScatterFigure | None:
    """Readings against the mean held-out error, one panel per slice; None without two values."""
    # No eye sees more digits, and every page has them in a table.
    values = {network: float(f"{value:.5g}") for network, value in result.values.items()}
    if len(values) < 2:
        return None
    panels = []
    for name in SLICES:
        errors = {network: round(known[network].error(name), 5) for network in values}
        groups: dict[str, list[Mark]] = {}
        for network, value in values.items():
            mark = Mark(value, errors[network], short_name(network))
            groups.setdefault(known[network].family, []).append(mark)
        worst = [pair for pair in (result.score.worst if result.score else []) if pair.slice == name]
        lines = [
            [[values[model], errors[model]] for model in (pair.better, pair.worse)]
            for pair in worst[:MOST_LINES]
        ]
        panels.append(Panel(SLICE_NAMES[name], groups, lines))
    return ScatterFigure(result.name, "mean held-out error", far_apart(list(values.values())), panels)


def cube_figures(cube: xr.Dataset, point: TradeOff) -> CubeFigure:
    """The cube of a family: heat maps of six statistics per model, and the marginals, with the star."""
    import numpy as np

    from genbench.testbed.cube import over_adaptations

    mean = over_adaptations(cube)
    models = [str(model) for model in cube["model"].values]
    starred = int(np.abs(cube["weights"].values - point.model_size).argmin())
    return CubeFigure(
        ssim=_list(cube["ssim"].values, 3),
        zero_shot=_list(cube["zero_shot"].values, 3),
        models=[
            f"{short_name(model)} · {short_count(float(count))}"
            for model, count in zip(models, cube["weights"].values, strict=True)
        ],
        maps={
            label: [_list(one, 3) for one in mean[name].transpose("model", "zero_shot", "ssim").values]
            for name, label in STATISTIC_NAMES.items()
        },
        star=MapStar(starred, point.ssim, point.zero_shot),
        marginals=[_marginal(cube, axis, point) for axis in _AXES],
    )


def _marginal(cube: xr.Dataset, axis: str, point: TradeOff) -> Marginal:
    from genbench.testbed.cube import marginals

    curves = marginals(cube)["model" if axis == "weights" else axis]
    return Marginal(
        axis=_AXES[axis],
        levels=_list(cube[axis].values, 3),
        curves={label: _list(curves[name].values, 4) for name, label in STATISTIC_NAMES.items()},
        star=CurveStar(point.along(axis), [point.generalization[axis], point.diversity[axis]]),
    )


def _list(values: np.ndarray[Any, Any], digits: int) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(digits).tolist()
    return rounded
