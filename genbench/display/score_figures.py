"""Figures of record-table scores: 001's CDFs of the sign-error (Fig. 1), by pairs of values (Fig. 2), with
and without the noise filter (Fig. 4); 002's scatter of IID and OOD scores (Fig. 1).

Ink is the colour of the text around a figure (see `inline_svg`), and what the papers print in white is
transparent here, so that a figure can be read on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genbench.display.figures import GROUP_MARKERS, GROUPS, INK, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["MARKS", "iid_ood_scatter", "noise_filter_bars", "sign_error_cdfs", "value_pair_cdfs"]

_BLUE, _ORANGE, _PINK = "#2b7fc4", "#e07b00", "#d6459a"
MARKS = {"max": (INK, "-"), "p90": (_PINK, "-"), "mean": (_ORANGE, "-")}
"""Colour and line of what is marked in every bar."""
_STEPS = 201


@styled
def sign_error_cdfs(
    environments: pd.DataFrame, summary: pd.DataFrame, measures: Sequence[str], parts: Sequence[str]
) -> Figure:
    """One bar per measure (columns) and hyperparameter (rows), from sign-error 0 at the bottom to 1.

    The bluer a bar at some height, the larger the share of environments with a sign-error above it: a
    perfect measure has an empty bar, one that always fails a full one.

    Parameters
    ----------
    environments : as `sign_error_environments` gives them.
    summary : as `robust_sign_error` gives it; maximum, 90th percentile and mean are marked.
    """
    from matplotlib.figure import Figure

    width = max(5.5, 1.3 + 0.42 * len(measures))
    figure = Figure(figsize=(width, 1.7 + 1.05 * len(parts)))
    grid = figure.subplots(len(parts), 1, squeeze=False, sharex=True)[:, 0]
    marked = summary.set_index(["measure", "part", "statistic"])["value"]
    for axes, part in zip(grid, parts, strict=True):
        for place, measure in enumerate(measures):
            own = environments[environments["measure"] == measure]
            if part != "all":
                own = own[own["hyperparameter"] == part]
            if own.empty:
                axes.plot(place, 0.5, "x", color="#d03030", markersize=6)
                continue
            marks = {statistic: marked[(measure, part, statistic)] for statistic in MARKS}
            _bar(axes, place, own["sign_error"].to_numpy(), marks)
        _bar_axes(axes, len(measures))
        axes.set_ylabel(_wrapped(part), rotation=0, ha="right", va="center", labelpad=6)
    grid[-1].set_xticks(
        range(len(measures)), measures, rotation=55, ha="right", rotation_mode="anchor", fontsize=8
    )
    grid[0].legend(
        handles=_mark_handles(), loc="lower left", bbox_to_anchor=(0, 1.02), ncols=3, borderaxespad=0,
        handlelength=1.6,
    )  # fmt: skip
    figure.tight_layout(h_pad=0.5)
    return figure


@styled
def value_pair_cdfs(environments: pd.DataFrame, by_values: pd.DataFrame, measure: str) -> Figure:
    """The bars of `sign_error_cdfs` of one measure, one per pair of values of a hyperparameter (001 Fig. 2).

    A red cross: the noise filter left no environment of that pair.

    Parameters
    ----------
    environments : as `sign_error_environments` gives them.
    by_values : as `errors_by_values` gives it.
    """
    from matplotlib.figure import Figure

    rows = by_values[by_values["measure"] == measure]
    panels = dict(list(rows.groupby("hyperparameter", sort=False)))
    lines = _lines_of({name: len(panel) for name, panel in panels.items()})
    bars = max(sum(count for _, count in line) for line in lines)
    figure = Figure(figsize=(max(6.0, 0.9 + 0.44 * bars), 0.3 + 2.3 * len(lines)))
    heights = [0.3, *[2.3] * len(lines)]
    top, *outer = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    top.legend(
        handles=_mark_handles(), loc="center left", bbox_to_anchor=(0.05, 0.5), ncols=3, handlelength=1.6
    )
    key = ["hyperparameter", "low_value", "high_value"]
    own = environments[environments["measure"] == measure]
    errors = {names: group["sign_error"].to_numpy() for names, group in own.groupby(key, sort=False)}
    for part, line in zip(outer, lines, strict=True):
        widths = [count for _, count in line]
        grid = part.subplots(1, len(line), squeeze=False, sharey=True, width_ratios=widths)[0]
        for axes, (name, count) in zip(grid, line, strict=True):
            for place, row in enumerate(panels[name].to_dict("records")):
                if row["kept"]:
                    _bar(axes, place, errors[name, row["low_value"], row["high_value"]], row)
                else:
                    axes.plot(place, 0.5, "x", color="#d03030", markersize=6)
            _bar_axes(axes, count)
            axes.set_title(name)
            labels = [f"{row['low_value']} → {row['high_value']}\n({row['kept']})"
                      for row in panels[name].to_dict("records")]  # fmt: skip
            axes.set_xticks(range(count), labels, rotation=55, ha="right", rotation_mode="anchor", fontsize=7)
        part.subplots_adjust(left=0.06, right=0.99, top=0.87, bottom=0.4, wspace=0.06)
    return figure


def _lines_of(counts: dict[str, int], most: int = 24) -> list[list[tuple[str, int]]]:
    """Panels in lines of at most so many bars."""
    lines: list[list[tuple[str, int]]] = []
    for name, count in counts.items():
        if not lines or sum(n for _, n in lines[-1]) + count > most:
            lines.append([])
        lines[-1].append((name, count))
    return lines


@styled
def noise_filter_bars(noise: pd.DataFrame, measures: Sequence[str]) -> Figure:
    """Mean, 90th percentile and maximum of the sign-error with and without the noise filter (001 Fig. 4).

    Parameters
    ----------
    noise : as `noise_filter_effect` gives it.
    """
    from matplotlib.figure import Figure

    values = noise.set_index(["statistic", "measure"])
    titles = {"mean": "mean", "p90": "90th percentile", "max": "maximum"}
    figure = Figure(figsize=(max(5.5, 1.3 + 0.42 * len(measures)), 5.6))
    grid = figure.subplots(len(titles), 1, sharex=True)
    places = np.arange(len(measures))
    for axes, (statistic, title) in zip(grid, titles.items(), strict=True):
        for shift, column, colour in ((-0.2, "filtered", _BLUE), (0.2, "unfiltered", _ORANGE)):
            heights = [values.loc[(statistic, measure), column] for measure in measures]
            axes.bar(places + shift, heights, 0.38, color=colour,
                     label=("with" if column == "filtered" else "without") + " the noise filter")  # fmt: skip
        _bar_axes(axes, len(measures))
        axes.set_ylabel(title)
    grid[-1].set_xticks(places, measures, rotation=55, ha="right", rotation_mode="anchor", fontsize=8)
    handles, labels = grid[0].get_legend_handles_labels()
    grid[0].legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.02), ncols=2, borderaxespad=0)
    figure.tight_layout(h_pad=0.5)
    return figure


def _bar(axes: Any, place: int, errors: Any, marks: Any) -> None:
    """One bar: the share of environments above every height, and marks at its statistics."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("shades", [(*_rgb(_BLUE), 0.0), (*_rgb(_BLUE), 1.0)])
    box = (place - 0.36, place + 0.36, 0.0, 1.0)
    axes.imshow(
        _share_above(errors)[:, None], extent=box, origin="lower", aspect="auto", cmap=shades, vmin=0, vmax=1,
        interpolation="nearest",
    )  # fmt: skip
    axes.add_patch(_outline(place))
    for statistic, (colour, line) in MARKS.items():
        value = marks[statistic]
        axes.plot(
            [place - 0.36, place + 0.36], [value, value], line, color=colour, linewidth=1.8,
            solid_capstyle="butt", clip_on=False, zorder=4,
        )  # fmt: skip


def _bar_axes(axes: Any, bars: int) -> None:
    """Axes of bars, from sign-error 0 at the bottom to 1, with a coin's ½ marked."""
    axes.set_xlim(-0.6, bars - 0.4)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes.axhline(0.5, color=INK, linewidth=0.5, alpha=0.4, linestyle=(0, (3, 3)), zorder=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0)


def _mark_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour, linewidth=1.8, label=label)
        for label, (colour, _) in zip(("maximum", "90th percentile", "mean"), MARKS.values(), strict=True)
    ]


def _share_above(errors: Any) -> Any:
    """Share of environments whose sign-error exceeds each of evenly spaced heights."""
    heights = (np.arange(_STEPS) + 0.5) / _STEPS
    return 1 - np.searchsorted(np.sort(errors), heights, side="right") / len(errors)


def _outline(place: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((place - 0.36, 0), 0.72, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.5)


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _wrapped(part: str) -> str:
    return part if len(part) <= 11 else part.replace("_", "_\n")


@styled
def iid_ood_scatter(kendall: pd.DataFrame, iid: str, shifted: Sequence[str]) -> Figure:
    """Psi of every measure against the IID gap (across) and every OOD gap (up), with each quadrant's share.

    Parameters
    ----------
    kendall : as `granulated_kendall` gives it.
    """
    from matplotlib.figure import Figure

    psi = kendall[kendall["statistic"] == "Psi"].pivot(index="measure", columns="target", values="value")
    figure = Figure(figsize=(5.6, 5.2))
    axes = figure.subplots()
    for number, target in enumerate(shifted):
        axes.plot(
            psi[iid], psi[target], GROUP_MARKERS[number % 6], color=GROUPS[number % 6], markersize=5,
            alpha=0.8, label=target, linestyle="none",
        )  # fmt: skip
    across = np.repeat(psi[iid].to_numpy()[:, None], len(shifted), axis=1).reshape(-1)
    up = psi[list(shifted)].to_numpy().reshape(-1)
    for right, top in ((True, True), (True, False), (False, True), (False, False)):
        share = np.mean(((across > 0) == right) & ((up > 0) == top))
        axes.text(
            0.97 if right else 0.03, 0.97 if top else 0.03, f"{share:.0%}", transform=axes.transAxes,
            ha="right" if right else "left", va="top" if top else "bottom", fontsize=11, alpha=0.75,
        )  # fmt: skip
    if len(shifted) == 1:
        for measure, row in psi.iterrows():
            axes.annotate(
                str(measure), (row[iid], row[shifted[0]]), xytext=(4, 3), textcoords="offset points",
                fontsize=6.5, alpha=0.8,
            )  # fmt: skip
    axes.plot([-1, 1], [-1, 1], color=INK, linewidth=0.6, alpha=0.4, linestyle=(0, (4, 4)), zorder=0)
    axes.axhline(0, color=INK, linewidth=0.6, alpha=0.6, zorder=0)
    axes.axvline(0, color=INK, linewidth=0.6, alpha=0.6, zorder=0)
    axes.set(
        xlim=(-1.05, 1.05),
        ylim=(-1.05, 1.05),
        xlabel=f"Ψ against {iid} (IID)",
        ylabel="Ψ against OOD gaps",
    )
    axes.spines[["top", "right"]].set_visible(False)
    if 1 < len(shifted) <= 12:
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
        figure.set_layout_engine("constrained")
    else:
        figure.tight_layout()
    return figure
