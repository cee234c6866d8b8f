"""Figures of cubes: heat maps and the paper's marginals (004 Fig. 2).

Functions return matplotlib figures; `display.figures` saves them and puts them on pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from genbench.display.figures import INK, styled
from genbench.display.names import short_count, short_name
from genbench.testbed.cube import AXES, DIMS, marginals, over_adaptations
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "STATISTIC_NAMES",
    "heat_maps",
    "marginal_figure",
]

STATISTIC_NAMES = {
    "error_mean": "error, M",
    "error_sd": "error, SD",
    "error_p10": "error, P10",
    "kappa_mean": "kappa, M",
    "kappa_sd": "kappa, SD",
    "kappa_p10": "kappa, P10",
}
_AXIS_NAMES = {"zero_shot": "zero-shot share", "ssim": "SSIM", "weights": "model size (weights)"}

# Okabe and Ito's colours, told apart by colour-blind eyes; these are mid-tones, seen on white and on black.
_ERROR, _KAPPA, _STAR = "#d55e00", "#2b8cc4", "#e0a000"
_STATISTIC_LINES = {"mean": ("-", "o"), "sd": ("--", "s"), "p10": (":", "^")}

_COLOUR_MAPS = {"error": "viridis", "kappa": "cividis"}
_LABELLED_CELLS = 30
"""Heat maps with at most this many cells have their numbers written in."""


# -- heat maps ---------------------------------------------------------------------------------------


@styled
def heat_maps(cube: xr.Dataset, statistic: str = "error_mean", trade_off: TradeOff | None = None) -> Figure:
    """One statistic over zero-shot × SSIM, one panel per model, smallest first; one colour bar for all.

    Parameters
    ----------
    trade_off : the trade-off point; its star stands in the panel of the nearest model size.
    """
    from matplotlib.figure import Figure

    values = over_adaptations(cube)[statistic].transpose("model", "zero_shot", "ssim").values
    models, rows, columns = values.shape
    across = models if models <= 5 else 4
    down = -(-models // across)
    width, height = 9.6, 0.62 + down * 1.95
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(down, across, squeeze=False)
    figure.subplots_adjust(
        left=0.62 / width, right=1 - 0.85 / width, bottom=0.5 / height, top=1 - 0.32 / height,
        hspace=0.24, wspace=0.12,
    )  # fmt: skip
    low, high = float(values.min()), float(values.max())
    starred = _nearest_model(cube, trade_off)
    image = None
    for i, axes in enumerate(grid.flat):
        if i >= models:
            axes.set_visible(False)
            continue
        image = axes.imshow(
            values[i], cmap=_COLOUR_MAPS[statistic.partition("_")[0]], vmin=low, vmax=high,
            origin="lower", aspect="auto", interpolation="none",
        )  # fmt: skip
        size = float(cube["weights"][i])
        axes.set_title(f"{short_name(str(cube['model'].values[i]))} · {short_count(size)}", pad=3)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        # Ticks on the outer edges only: drawing them is most of a figure's time.
        outer_left, outer_bottom = i % across == 0, i + across >= models
        _level_ticks(axes.set_xticks, cube["ssim"].values, most=5 if outer_bottom else 0)
        _level_ticks(axes.set_yticks, cube["zero_shot"].values, most=6 if outer_left else 0)
        if rows * columns <= _LABELLED_CELLS:
            _write_numbers(axes, values[i], low, high)
        if i == starred and trade_off is not None:
            x, y = (_place(cube[axis].values, trade_off.along(axis)) for axis in ("ssim", "zero_shot"))
            axes.plot(x, y, "*", color="white", markeredgecolor="black", markersize=11, clip_on=False)
    assert image is not None
    beside = (1 - 0.72 / width, 0.5 / height, 0.13 / width, 1 - 0.82 / height)
    bar = figure.colorbar(image, cax=figure.add_axes(beside))
    bar.outline.set_visible(False)
    bar.ax.set_title(STATISTIC_NAMES[statistic], fontsize=8, pad=5)
    left, right = 0.62 / width, 1 - 0.85 / width
    figure.text((left + right) / 2, 0.09 / height, _AXIS_NAMES["ssim"], ha="center")
    figure.text(0.1 / width, 0.5, _AXIS_NAMES["zero_shot"], rotation=90, va="center")
    return figure


def _nearest_model(cube: xr.Dataset, trade_off: TradeOff | None) -> int | None:
    if trade_off is None:
        return None
    return int(np.abs(cube["weights"].values - trade_off.model_size).argmin())


def _place(levels: Any, value: float) -> float:
    """Where a value lies between evenly drawn levels."""
    return float(np.interp(value, levels, np.arange(len(levels))))


def _level_ticks(set_ticks: Callable[..., Any], levels: Any, most: int) -> None:
    step = math.ceil(len(levels) / most) if most else 0
    chosen = range(len(levels) - 1, -1, -step)[::-1] if most else ()
    set_ticks(list(chosen), [_level(levels[i]) for i in chosen])


def _level(value: float) -> str:
    return f"{value:.2f}" if 0 < value < 1 else f"{value:.0f}"


def _write_numbers(axes: Axes, values: Any, low: float, high: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        dark = value < low + 0.6 * (high - low)  # both colour maps run from dark to light
        axes.text(
            column, row, f"{value:.2f}", ha="center", va="center", fontsize=7.5,
            color="#ffffff" if dark else "#000000",
        )  # fmt: skip


# -- marginals ---------------------------------------------------------------------------------------


@styled
def marginal_figure(cube: xr.Dataset, trade_off: TradeOff | None = None) -> Figure:
    """The marginals of a family (Eq. 5) along SSIM, zero-shot share and model size: six curves each.

    The trade-off point is a vertical line with a star on the M curves of error and of kappa.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.35))
    panels = figure.subplots(1, 3, sharey=True)
    figure.subplots_adjust(left=0.068, right=0.98, bottom=0.255, top=0.955, wspace=0.06)
    curves = marginals(cube)
    dims = dict(zip(AXES, DIMS, strict=True))
    for axes, axis in zip(panels, ("ssim", "zero_shot", "weights"), strict=True):
        levels = cube[axis].values
        for name, label in STATISTIC_NAMES.items():
            quantity, _, statistic = name.partition("_")
            line, marker = _STATISTIC_LINES[statistic]
            axes.plot(
                levels, curves[dims[axis]][name].values, line, marker=marker, label=label,
                color=_ERROR if quantity == "error" else _KAPPA,
                alpha=1.0 if statistic == "mean" else 0.75,
            )  # fmt: skip
        if trade_off is not None:
            at = trade_off.along(axis)
            axes.axvline(at, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
            stars = [trade_off.generalization[axis], trade_off.diversity[axis]]
            axes.plot(
                [at, at], stars, "*", color=_STAR, markeredgecolor=INK, markeredgewidth=0.7, markersize=13,
                label="trade-off point", clip_on=False, zorder=5,
            )  # fmt: skip
        axes.set_xlabel(_AXIS_NAMES[axis])
        axes.grid(alpha=0.14, linewidth=0.6)
        axes.margins(x=0.04)
        if axis == "weights":
            axes.xaxis.set_major_locator(_few_ticks())
            axes.xaxis.set_major_formatter(lambda count, _: short_count(count))
    panels[0].set_ylabel("mean over the other two axes")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), columnspacing=1.5, handlelength=2.6)
    return figure


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)
