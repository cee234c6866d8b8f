"""All sign-errors of all measures at a glance: the scatter plots of 004's Figure 3 (e)–(h).

One panel per slice; in it, every measure has a mark for each statistic of the error and each family.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct

from genbench.display.figures import GROUP_MARKERS, GROUPS, INK, styled
from genbench.scoring.practical import SLICE_NAMES, SLICES, STATISTIC_NAMES, STATISTICS
from genbench.suites.result import MeasureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ErrorFigure", "error_scatter", "sign_error_scatter"]


class ErrorSeries(Struct, frozen=True):
    """Marks of one kind: sign-errors in the order of the measures, None where there is none."""

    family: str
    statistic: str
    values: list[float | None]


class ErrorPanel(Struct, frozen=True):
    """A slice."""

    title: str
    series: list[ErrorSeries]
    above: dict[str, float]
    """Statistic to the share of its sign-errors that exceed ½, as the paper counts them."""


class ErrorFigure(Struct, frozen=True):
    """All sign-errors; `assets/figures.js` draws it."""

    measures: list[str]
    """Those with a score, the best first."""
    families: list[str]
    panels: list[ErrorPanel]


class _MarkStyle(TypedDict):
    marker: str
    color: str
    markerfacecolor: str
    markersize: float
    markeredgewidth: float


def error_scatter(results: Sequence[MeasureResult]) -> ErrorFigure | None:
    """The scored measures and their sign-errors by slice, family and statistic; None without a score."""
    scored = [one for one in results if one.score is not None]
    scored.sort(key=lambda one: (one.score.value, one.name))
    if not scored:
        return None
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for one in scored:
        for part in one.score.parts:
            found.setdefault((part.slice, part.family, part.statistic), {})[one.name] = part.value
    names = [one.name for one in scored]
    families = sorted({family for _, family, _ in found})
    panels = []
    for name in SLICES:
        series = [
            ErrorSeries(
                family,
                STATISTIC_NAMES[statistic],
                [_rounded(found[name, family, statistic].get(measure)) for measure in names],
            )
            for statistic in STATISTICS
            for family in families
            if (name, family, statistic) in found
        ]
        panels.append(ErrorPanel(SLICE_NAMES[name], series, _above(series)))
    return ErrorFigure(names, families, panels)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _above(series: Sequence[ErrorSeries]) -> dict[str, float]:
    """Statistic to the share of its sign-errors that exceed ½."""
    shares = {}
    for statistic in dict.fromkeys(one.statistic for one in series):
        values = [v for one in series if one.statistic == statistic for v in one.values if v is not None]
        shares[statistic] = round(fmean(value > 0.5 for value in values), 4)
    return shares


@styled
def sign_error_scatter(results: Sequence[MeasureResult]) -> Figure | None:
    """The same for a paper: colours tell statistics apart, filled and hollow marks families."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    data = error_scatter(results)
    if data is None:
        return None
    names, statistics = data.measures, [STATISTIC_NAMES[name] for name in STATISTICS]
    figure = Figure(figsize=(max(5.5, 1.2 + 0.15 * len(names)), 6.4))
    panels = figure.subplots(len(data.panels), 1, sharex=True)
    for axes, panel in zip(panels, data.panels, strict=True):
        for one in panel.series:
            style = _style(one.statistic, one.family, statistics, data.families)
            points = [(x, y) for x, y in enumerate(one.values) if y is not None]
            axes.plot(*zip(*points, strict=True), linestyle="none", alpha=0.85, clip_on=False, **style)
        shares = ", ".join(f"{share:.0%} of {name}" for name, share in panel.above.items())
        axes.set_title(f"{panel.title}: {shares} above ½", loc="left")
        axes.axhline(0.5, color=INK, linewidth=0.6, alpha=0.6, linestyle=(0, (4, 4)), zorder=0)
        axes.set(xlim=(-0.7, len(names) - 0.3), ylim=(0, 1), ylabel="sign-error")
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
        axes.grid(axis="x", linewidth=0.4, alpha=0.25)
    panels[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    handles = [
        Line2D([], [], linestyle="none", label=f"{statistic} of error, {family}",
               **_style(statistic, family, statistics, data.families))
        for statistic in statistics
        for family in data.families
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=len(statistics))
    figure.set_layout_engine("constrained")
    return figure


def _style(statistic: str, family: str, statistics: Sequence[str], families: Sequence[str]) -> _MarkStyle:
    place, filled = statistics.index(statistic), families.index(family) % 2 == 0
    colour = GROUPS[place % len(GROUPS)]
    return {
        # Families beyond the second repeat the fill and take the next marks.
        "marker": GROUP_MARKERS[(place + 3 * (families.index(family) // 2)) % len(GROUP_MARKERS)],
        "color": colour,
        "markerfacecolor": colour if filled else "none",
        "markersize": 4.5,
        "markeredgewidth": 1.0,
    }
