"""A scatter plot of characters, for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from genbench.display.scatter import ScatterPanel, far_apart

__all__ = ["terminal_scatter"]

_WIDTH, _HEIGHT = 56, 14
_MARKS = "●○◆◇▲△"
_SEVERAL = "#"
"""Where marks of several groups meet."""


def terminal_scatter(reading: str, panel: ScatterPanel) -> list[str]:
    """Lines of text: the truth upwards, readings to the right, a mark per network and group.

    Readings that span more than two orders of magnitude stand on a logarithmic scale, as in pictures.
    """
    points = panel.points
    if not points:
        return []
    logarithmic = far_apart([point.reading for point in points])
    across = [math.log10(p.reading) if logarithmic else p.reading for p in points]
    columns = [_place(value, across, _WIDTH) for value in across]
    rows = [_place(p.truth, [one.truth for one in points], _HEIGHT) for p in points]
    groups = list(dict.fromkeys(p.group for p in points))
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for point, column, row in zip(points, columns, rows, strict=True):
        mark = _MARKS[groups.index(point.group) % len(_MARKS)]
        found = grid[row][column]
        grid[row][column] = mark if found in (" ", mark) else _SEVERAL
    truths = [point.truth for point in points]
    readings = [point.reading for point in points]
    left = max(len(_number(value)) for value in (min(truths), max(truths)))
    lines = [f"{panel.truth}{f', {panel.title}' if panel.title else ''}"]
    for number, row_marks in enumerate(reversed(grid)):
        label = {0: _number(max(truths)), _HEIGHT - 1: _number(min(truths))}.get(number, "")
        lines.append(f"{label:>{left}} │{''.join(row_marks).rstrip()}")
    lines.append(f"{'':>{left}} └{'─' * _WIDTH}")
    ends = _number(min(readings)), _number(max(readings))
    lines.append(f"{'':>{left}}  {ends[0]}{ends[1]:>{_WIDTH - len(ends[0])}}")
    scale = ", logarithmic" if logarithmic else ""
    lines.append(f"{'':>{left}}  {reading}{scale}")
    if len(groups) > 1:
        marks = (f"{_MARKS[place % len(_MARKS)]} {group}" for place, group in enumerate(groups))
        lines.append(f"{'':>{left}}  {'  '.join(marks)}")
    return lines


def _place(value: float, values: Sequence[float], size: int) -> int:
    low, high = min(values), max(values)
    return size // 2 if high == low else round((value - low) / (high - low) * (size - 1))


def _number(value: float) -> str:
    return f"{value:.4g}"
