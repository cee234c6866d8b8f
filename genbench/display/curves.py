"""Curves of several quantities over one axis, one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genbench.display.figures import GROUPS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["curves"]


@styled
def curves(axis: str, places: Sequence[float], values: Mapping[str, Sequence[float]]) -> Figure:
    """A row for each quantity, all over the same axis; each has a scale of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.7 + 1.5 * max(1, len(values))), layout="constrained")
    rows = figure.subplots(max(1, len(values)), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axes, (name, curve)) in enumerate(zip(rows, values.items(), strict=False)):
        axes.plot(places, curve, "o-", color=GROUPS[place % len(GROUPS)], markersize=3.5)
        axes.set_ylabel(name)
        axes.grid(alpha=0.14, linewidth=0.6)
    rows[-1].set_xlabel(axis)
    return figure
