"""What the site's figures of a testbed show, as JSON values; `assets/figures.js` draws them with plotly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genbench.display.names import short_count, short_name
from genbench.display.scatter import MOST_LINES, far_apart
from genbench.scoring.practical import HEADLINE, SLICE_NAMES, SLICES
from genbench.suites.result import MeasureResult
from genbench.testbed.cube_figures import STATISTIC_NAMES
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = [
    "cube_figures",
    "scatter",
]

_AXES = {"ssim": "SSIM", "zero_shot": "zero-shot share", "weights": "model size (weights)"}


def scatter(result: MeasureResult, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Readings against the mean held-out error, one panel per slice; None without two values."""
    # No eye sees more digits, and every page has them in a table.
    values = {network: float(f"{value:.5g}") for network, value in result.values.items()}
    if len(values) < 2:
        return None
    panels = []
    for name in SLICES:
        errors = {network: round(known[network][name][HEADLINE], 5) for network in values}
        groups: dict[str, list[Any]] = {}
        for network, value in values.items():
            point = {"x": value, "y": errors[network], "name": short_name(network)}
            groups.setdefault(known[network]["family"], []).append(point)
        worst = [pair for pair in (result.score.worst if result.score else []) if pair.slice == name]
        lines = [
            [[values[model], errors[model]] for model in (pair.better, pair.worse)]
            for pair in worst[:MOST_LINES]
        ]
        panels.append({"title": SLICE_NAMES[name], "groups": groups, "wrong": lines})
    return {
        "x": result.name,
        "y": "mean held-out error",
        "log": far_apart(list(values.values())),
        "panels": panels,
    }


def cube_figures(cube: xr.Dataset, point: TradeOff) -> dict[str, Any]:
    """The cube of a family: heat maps of six statistics per model, and the marginals, with the star."""
    import numpy as np

    from genbench.testbed.cube import over_adaptations

    mean = over_adaptations(cube)
    models = [str(model) for model in cube["model"].values]
    starred = int(np.abs(cube["weights"].values - point.model_size).argmin())
    return {
        "ssim": _list(cube["ssim"].values, 3),
        "zero_shot": _list(cube["zero_shot"].values, 3),
        "models": [
            f"{short_name(model)} · {short_count(float(count))}"
            for model, count in zip(models, cube["weights"].values, strict=True)
        ],
        "maps": {
            label: [
                _list(one, 3) for one in mean[name].transpose("model", "zero_shot", "ssim").values
            ]
            for name, label in STATISTIC_NAMES.items()
        },
        "star": {"model": starred, "ssim": point.ssim, "zero_shot": point.zero_shot},
        "marginals": [_marginal(cube, axis, point) for axis in _AXES],
    }  # fmt: skip


def _marginal(cube: xr.Dataset, axis: str, point: TradeOff) -> dict[str, Any]:
    from genbench.testbed.cube import marginals

    curves = marginals(cube)["model" if axis == "weights" else axis]
    return {
        "axis": _AXES[axis],
        "levels": _list(cube[axis].values, 3),
        "curves": {label: _list(curves[name].values, 4) for name, label in STATISTIC_NAMES.items()},
        "star": {
            "x": point.along(axis),
            "y": [point.generalization[axis], point.diversity[axis]],
        },
    }


def _list(values: np.ndarray[Any, Any], digits: int) -> list[Any]:
    rounded: list[Any] = values.astype(float).round(digits).tolist()
    return rounded
