"""What the site's figures of a testbed show, as JSON values; `assets/figures.js` draws them with plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from genbench.display.names import short_count, short_name
from genbench.display.packed import Packed, packed
from genbench.display.scatter import MOST_LINES, far_apart
from genbench.scoring.practical import SLICE_NAMES, SLICES, JudgedModel, Part, WorstPair
from genbench.scoring.practical import STATISTIC_NAMES as SHORT_NAMES
from genbench.suites.result import MeasureResult
from genbench.testbed.cube_figures import STATISTIC_NAMES
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = [
    "CubeFigure",
    "ScatterFigure",
    "SharedNetworks",
    "cube_figures",
    "scatter",
    "shared_networks",
]

_AXES = {"ssim": "SSIM", "zero_shot": "zero-shot share", "weights": "model size (weights)"}


class Panel(Struct, frozen=True):
    """A slice."""

    title: str
    errors: list[float]


class SharedNetworks(Struct, frozen=True):
    """What the pages of all measures say of the networks, in one order: `networks.js`."""

    names: list[str]
    families: list[str]
    y: str
    panels: list[Panel]


class ScatterFigure(Struct, frozen=True):
    """Readings against errors."""

    x: str
    log: bool
    values: Packed | list[float | None]
    """In the order of the networks."""
    wrong: list[list[tuple[int, int]]]
    """Of each panel: pairs of networks that a line joins."""
    told: list[tuple[int, int, int, str, str, str]]
    """Wrongly ordered pairs, the surest first: panel, better and worse network, their readings, sureness."""
    parts: list[tuple[int, int, str, float, float, float, float | None, int, int, int]]
    """Of the sign-error: family, panel, statistic, value, ends of its interval, noise-aware, pairs, sure
    pairs, ties."""


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


def shared_networks(known: Mapping[str, JudgedModel]) -> SharedNetworks:
    """Networks with their mean held-out error in each slice."""
    return SharedNetworks(
        names=[short_name(network) for network in known],
        families=[one.family for one in known.values()],
        y="mean held-out error",
        panels=[
            Panel(SLICE_NAMES[name], [round(one.error(name), 4) for one in known.values()]) for name in SLICES
        ],
    )


def scatter(
    result: MeasureResult, known: Mapping[str, JudgedModel], told: Sequence[tuple[WorstPair, str, str]]
) -> ScatterFigure | None:
    """Readings against the mean held-out error, one panel per slice; None without two values.

    Parameters
    ----------
    told : pairs that the page tells of, with their readings as it shows them.
    """
    values = result.values
    if len(values) < 2:
        return None
    place = {network: number for number, network in enumerate(known)}
    worst = result.score.worst if result.score else []
    wrong = [
        [(place[pair.better], place[pair.worse]) for pair in worst if pair.slice == name][:MOST_LINES]
        for name in SLICES
    ]
    families = list(dict.fromkeys(one.family for one in known.values()))
    return ScatterFigure(
        x=result.name,
        log=far_apart(list(values.values())),
        # No eye sees more digits, and records have them all.
        values=packed([values.get(network) for network in known]),
        wrong=wrong,
        told=[
            (
                SLICES.index(pair.slice),
                place[pair.better],
                place[pair.worse],
                first,
                second,
                f"{pair.certainty:.1f}",
            )
            for pair, first, second in told
        ],
        parts=[_part(part, families) for part in (result.score.parts if result.score else [])],
    )


def _part(
    part: Part, families: Sequence[str]
) -> tuple[int, int, str, float, float, float, float | None, int, int, int]:
    aware = None if part.noise_aware is None else round(part.noise_aware, 3)
    ends = (round(part.value, 3), round(part.low, 3), round(part.high, 3))
    place = (families.index(part.family), SLICES.index(part.slice), SHORT_NAMES[part.statistic])
    return (*place, *ends, aware, part.pairs, part.sure_pairs, part.ties)


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
