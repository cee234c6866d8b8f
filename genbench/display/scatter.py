"""Readings of a measure against the truth, as a scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genbench.display.figures import GROUP_MARKERS, GROUPS, INK, styled
from genbench.display.names import short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MOST_LINES", "Point", "ScatterPanel", "far_apart", "reading_scatter"]

MOST_LINES = 12
"""Wrong pairs that a scatter plot joins by lines."""
_LONGEST_LABEL = 12
"""Networks with longer names stand in a scatter plot without them."""


@dataclass(frozen=True)
class Point:
    """One network in a scatter plot."""

    name: str
    group: str
    """Its family; groups have their own colour and marker, and only pairs within one are compared."""
    reading: float
    truth: float


@dataclass(frozen=True)
class ScatterPanel:
    """Readings against one kind of truth."""

    title: str
    truth: str
    """What the vertical axis shows."""
    points: Sequence[Point]
    wrong: Sequence[tuple[str, str]]
    """Names of the networks of wrongly ordered pairs, the surest first."""


@styled
def reading_scatter(reading: str, panels: Sequence[ScatterPanel]) -> Figure:
    """Readings of a measure against the truth; lines join the pairs that it orders wrongly.

    Parameters
    ----------
    reading : what the horizontal axis shows.
    """
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(point.group for panel in panels for point in panel.points))
    several = len(groups) > 1
    width, height = 4.8 * max(len(panels), 1.4), 3.5 if several else 3.2
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left=0.6 / width, right=1 - 0.12 / width, top=1 - 0.3 / height,
        bottom=(0.78 if several else 0.5) / height, wspace=0.2,
    )  # fmt: skip
    scale = "log" if far_apart([point.reading for panel in panels for point in panel.points]) else "linear"
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        at = {point.name: (point.reading, point.truth) for point in panel.points}
        for place, pair in enumerate(panel.wrong[:MOST_LINES]):
            (x1, y1), (x2, y2) = (at[name] for name in pair)
            axes.plot(
                [x1, x2],
                [y1, y2],
                color=INK,
                linewidth=0.8,
                alpha=0.45 - 0.3 * place / MOST_LINES,
                zorder=1,
            )
        for i, group in enumerate(groups):
            chosen = [point for point in panel.points if point.group == group]
            axes.plot(
                [point.reading for point in chosen], [point.truth for point in chosen],
                GROUP_MARKERS[i % len(GROUP_MARKERS)], color=GROUPS[i % len(GROUPS)], markersize=6,
                label=group, zorder=3,
            )  # fmt: skip
        if len(panel.points) <= 20 and all(len(short_name(p.name)) <= _LONGEST_LABEL for p in panel.points):
            for point in panel.points:
                axes.annotate(
                    short_name(point.name), (point.reading, point.truth), xytext=(4, 4), fontsize=7,
                    textcoords="offset points", alpha=0.85,
                )  # fmt: skip
        axes.set_xscale(scale)
        if scale == "log":
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_title(panel.title)
        axes.set_xlabel(reading)
        axes.set_ylabel(panel.truth)
        axes.grid(alpha=0.14, linewidth=0.6)
        axes.margins(0.09)
    if several:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=len(labels), columnspacing=2)
    return figure


def far_apart(readings: Sequence[float]) -> bool:
    """Whether all are positive and span more than two orders of magnitude."""
    return 0 < 100 * min(readings, default=0.0) < max(readings, default=0.0)
