"""The figures of 000 for one measure: C and the error side by side, as the audit's networks have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from genbench.audit.observed import Observed, Row
from genbench.display.figures import GROUP_MARKERS, GROUPS, INK, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "Series", "draw_panels", "panels_of"]

_ERROR = "test error"
_TENTH = 0.1
"""000 marks an error of 10 %: networks of Exp++ stay below."""


@dataclass(frozen=True)
class Series:
    """Points, or a line through the means of those with one x."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    right: bool = False
    """Whether it is the error, drawn in ink against the axis on the right."""
    line: bool = True


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure."""

    title: str
    across: str
    up: str
    series: Sequence[Series]
    log_across: bool = True
    marks: Sequence[float] = field(default=())
    """Where dashed lines stand: T_int."""
    of_error: bool = False
    """Whether it shows the error, from 0, and not the measure."""
    error_line: float | None = None
    """Where a line lies across, on the axis of the error on the right."""


@styled
def draw_panels(panels: Sequence[Panel]) -> Figure:
    """Panels side by side, on one scale for C."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5 * max(len(panels), 2), 3.3), layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    measured = [v for p in panels if not p.of_error for s in p.series if not s.right for v in s.y]
    positive = bool(measured) and min(measured) > 0
    names = list(dict.fromkeys(s.name for p in panels for s in p.series if not s.right))
    for axes, panel in zip(places, panels, strict=True):
        _draw(axes, panel, positive and not panel.of_error, names)
        if panel.of_error:
            axes.set_ylim(bottom=0)
        elif measured and max(measured) > min(measured):
            low, high = min(measured), max(measured)
            room = (high / low) ** 0.06 if positive else 0.06 * (high - low)
            axes.set_ylim(*((low / room, high * room) if positive else (low - room, high + room)))
        _plain_logarithms(axes)
    return figure


def _plain_logarithms(axes: Axes) -> None:
    """Marks as 0.02 or 1e+06: matplotlib's own are mathematical text, which figures here do without."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, scale, ends in (
        (axes.xaxis, axes.get_xscale(), axes.get_xlim()),
        (axes.yaxis, axes.get_yscale(), axes.get_ylim()),
    ):
        if scale == "log":
            decades = np.log10(ends[1] / ends[0])
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=6))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())


def _draw(axes: Axes, panel: Panel, positive: bool, names: Sequence[str]) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if panel.log_across:
        axes.set_xscale("log")
    if positive:
        axes.set_yscale("log")
    right = axes.twinx() if any(s.right for s in panel.series) else axes
    if right is not axes:
        right.spines["right"].set_visible(True)
        right.set_ylabel(_ERROR)
        errors = [v for s in panel.series if s.right for v in s.y]
        right.set_ylim(0, max(0.05, 1.15 * max([*errors, panel.error_line or 0.0])))
        if panel.error_line is not None:
            right.axhline(panel.error_line, color=INK, linestyle="--", linewidth=0.7)
    for series in panel.series:
        place = right if series.right else axes
        number = 0 if series.right else names.index(series.name) % len(GROUPS)
        colour = INK if series.right else GROUPS[number]
        x = np.array(series.x)
        y = np.array(series.y)
        at = np.unique(x)
        if series.line and len(at):
            means = np.array([y[x == one].mean() for one in at])
            place.plot(at, means, color=colour, linestyle=":" if series.right else "-", label=series.name)
        place.plot(x, y, GROUP_MARKERS[number], color=colour, markersize=3, alpha=0.6,
                   label=None if series.line else series.name)  # fmt: skip
    for mark in panel.marks:
        axes.axvline(mark, color=INK, linestyle="--", linewidth=0.7)
    if len(panel.series) > 1:
        handles = [pair for a in {id(a): a for a in (axes, right)}.values()
                   for pair in zip(*a.get_legend_handles_labels(), strict=True)]  # fmt: skip
        axes.legend(*zip(*handles, strict=True), loc="best", fontsize=7)


def panels_of(observed: Observed, stressor: str, measure: str) -> list[Panel]:
    """What the page shows of a stressor; none of `pixels`, which is a table."""
    rows = observed.rows(stressor, *(("drift",) if stressor == "hysteresis" else ()))
    return _MAKERS[stressor](rows.rows, measure) if stressor in _MAKERS and rows.rows else []


def _grouped(rows: Sequence[Row], *names: str) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        key = ", ".join(row.recipe if name == "recipe" else str(row[name]) for name in names)
        found.setdefault(key, []).append(row)
    return found


def _both(name: str, rows: Sequence[Row], x: Sequence[float], error: bool = True) -> list[Series]:
    own = Series(name, x, [row.value for row in rows])
    return [own, Series(_ERROR, x, [row.error for row in rows], right=True)] if error else [own]


def _slope(rows: Sequence[Row], measure: str) -> list[Panel]:
    fcn = [row for row in rows if row["net"] == "fcn"]
    return [
        Panel(recipe, "training examples", measure, _both(measure, mine, [float(row["n"]) for row in mine]))
        for recipe, mine in _grouped(fcn, "recipe").items()
    ]


def _drift(rows: Sequence[Row], measure: str) -> list[Panel]:
    panels = []
    for net, mine in _grouped(rows, "net").items():
        series, errors, marks = [], [], []
        for recipe, some in _grouped(mine, "recipe").items():
            first = [row for row in some if row["seed"] == 0]
            epochs = [float(row.truth.kept.epoch) for row in first]
            series += _both(recipe, first, epochs, error=False)
            errors.append(Series(recipe, epochs, [row.error for row in first]))
            marks += [
                float(r.truth.kept.epoch) for r in first if r["kept"] == "T_int" and r.truth.kept.reached
            ]
        panels.append(Panel(net, "epoch", measure, series, marks=marks))
        panels.append(Panel(net, "epoch", _ERROR, errors, marks=marks, of_error=True))
    return panels


def _hysteresis(rows: Sequence[Row], measure: str) -> list[Panel]:
    start = [row for row in rows if row.truth.stressor == "drift" and row["net"] == "fcn"]
    start = [
        row for row in start if row["seed"] == 0 and row.recipe == "adam 0.01" and row["kept"] == "T_int"
    ]
    own = [row for row in rows if row.truth.stressor == "hysteresis" and row["seed"] == 0]
    series: list[Series] = []
    for recipe, some in _grouped(own, "recipe").items():
        branch = [*start, *some]
        series += _both(recipe, branch, [float(row.truth.kept.epoch) for row in branch], error=False)
    marks = [float(row.truth.kept.epoch) for row in start]
    return [Panel("branches from T_int", "epoch", measure, series, marks=marks)]


def _labels(rows: Sequence[Row], measure: str) -> list[Panel]:
    panels = []
    for recipe, mine in _grouped(rows, "recipe").items():
        shares = [float(row["share"]) for row in mine]
        panels.append(
            Panel(
                recipe, "share of labels drawn anew", measure, _both(measure, mine, shares), log_across=False
            )
        )
    return panels


def _tasks(rows: Sequence[Row], measure: str) -> list[Panel]:
    series, errors = [], []
    for task, some in _grouped(rows, "task").items():
        sizes = [float(row["n"]) for row in some]
        series += _both(task, some, sizes, error=False)
        errors.append(Series(task, sizes, [row.error for row in some]))
    across = "training examples"
    return [Panel("", across, measure, series), Panel("", across, _ERROR, errors, of_error=True)]


def _exponential(rows: Sequence[Row], measure: str) -> list[Panel]:
    panels = []
    for decay, mine in _grouped(rows, "decay").items():
        growth = [float(row["alpha"]) ** -100 for row in mine]
        series = _both(measure, mine, growth)
        panels.append(
            Panel(f"weight decay {decay}", "growth of the weights", measure, series, error_line=_TENTH)
        )
    return panels


def _spread(rows: Sequence[Row], measure: str) -> list[Panel]:
    panels = []
    for net, mine in _grouped(rows, "net").items():
        series = [
            Series(optimizer, [row.error for row in some], [row.value for row in some], line=False)
            for optimizer, some in _grouped(mine, "optimizer").items()
        ]
        panels.append(Panel(net, _ERROR, measure, series, log_across=False))
    return panels


_MAKERS = {
    "slope": _slope,
    "drift": _drift,
    "hysteresis": _hysteresis,
    "labels": _labels,
    "tasks": _tasks,
    "exp": _exponential,
    "spread": _spread,
}
