"""Readings of two measures against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genbench.display.figures import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["rank_scatter"]


@styled
def rank_scatter(
    first_name: str, first: Sequence[float], second_name: str, second: Sequence[float], truth: Sequence[float]
) -> Figure:
    """Ranks of both readings, one mark per network, darker where the truth is worse.

    On the diagonal both order networks alike. Ranks, because readings of two measures share no scale.
    """
    import numpy as np
    from matplotlib.figure import Figure
    from scipy.stats import rankdata

    figure = Figure(figsize=(4.6, 3.8), layout="constrained")
    axes = figure.subplots()
    last = max(len(first), 2)
    axes.plot([1, last], [1, last], linewidth=0.8, alpha=0.35, color="#7f7f7f", zorder=1)
    marks = axes.scatter(
        rankdata(first), rankdata(second), c=np.asarray(truth, dtype=float), cmap="viridis_r", s=26, zorder=3
    )
    axes.set_xlabel(f"rank of {first_name}")
    axes.set_ylabel(f"rank of {second_name}")
    axes.grid(alpha=0.14, linewidth=0.6)
    figure.colorbar(marks, ax=axes, label="truth")
    return figure
