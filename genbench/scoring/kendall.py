"""Granulated Kendall score: does a measure order runs that differ in one hyperparameter? (002 Sec. 3.4)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import number_rows, pairs_within
from genbench.scoring.progress import Tick, part_of, quiet
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["granulated_kendall"]

Floats = NDArray[np.float64]
# Cells of a (rows, rows) or (resamples, pairs) matrix held at once.
_CELLS = 2**21


@dataclass(frozen=True, eq=False)
class _Axis:
    """Pairs of runs that differ in one hyperparameter alone, the seed being equal."""

    name: str
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weight: Floats
    """(pairs,) one over the pairs of the group, so that groups weigh equally."""
    groups: int


def _axes(networks: NetworkTable) -> list[_Axis]:
    axes = []
    for place in networks.varying:
        others = np.column_stack([np.delete(networks.codes, place, axis=1), networks.seeds])
        _, label = number_rows(others)
        first, second = pairs_within(label)
        pairs = np.bincount(label[first])
        name = networks.hyperparameters[place]
        axes.append(_Axis(name, first, second, 1 / pairs[label[first]], int((pairs > 0).sum())))
    return axes


def _signs(values: Floats, axis: _Axis) -> Floats:
    return np.asarray(np.sign(values[axis.first] - values[axis.second]))


def _order(values: Floats, part: slice) -> NDArray[np.int8]:
    """(some rows, rows) signs of differences, one byte each."""
    above, below = values[part, None] > values, values[part, None] < values
    return np.asarray(above.view(np.int8) - below.view(np.int8))


def _overall(networks: NetworkTable, gap: Floats, drawn: NDArray[np.float32], tick: Tick) -> Floats:
    """(resamples, measures) tau over all pairs, each counting the product of its multiplicities."""
    rows = len(networks)
    total = np.zeros((len(drawn), len(networks.measures)))
    step = max(1, _CELLS // rows)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        gaps = _order(gap, part)
        for place in range(len(networks.measures)):
            agreement = gaps * _order(networks.readings[:, place], part)
            total[:, place] += np.einsum(
                "rj,rj->r", drawn[:, part] @ agreement.astype(np.float32), drawn, dtype=np.float64
            )
        tick(len(gaps) / rows)
    pairs = np.square(drawn.sum(axis=1, dtype=np.float64)) - np.square(drawn).sum(axis=1, dtype=np.float64)
    ratio = np.divide(total, pairs[:, None], out=np.full_like(total, np.nan), where=pairs[:, None] > 0)
    return np.asarray(ratio)


def _psi(networks: NetworkTable, gap: Floats, axis: _Axis, drawn: NDArray[np.float32]) -> Floats:
    """(resamples, measures) psi of one axis.

        psi = Σ_g Σ_pairs w_i·w_j·s / P_g  over  Σ_g Σ_pairs w_i·w_j / P_g

    With all multiplicities w = 1 this is the mean over groups of tau.
    """
    agreement = (_signs(gap, axis) * axis.weight)[:, None] * _signs(networks.readings, axis)
    both = np.column_stack([agreement, axis.weight]).astype(np.float64)
    sums = np.zeros((len(drawn), both.shape[1]))
    step = max(1, _CELLS // max(1, len(axis.first)))
    for start in range(0, len(drawn), step):
        part = drawn[start : start + step]
        sums[start : start + step] = (part[:, axis.first] * part[:, axis.second]) @ both
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[:, :-1] / sums[:, -1:])


def granulated_kendall(
    networks: NetworkTable, *, resamples: int = RESAMPLES, seed: int = 0, tick: Tick = quiet
) -> pd.DataFrame:
    """psi of every hyperparameter, their mean Psi and the overall tau, for the gap and every OOD gap.

        tau = mean over pairs of sgn(dC)·sgn(dG), no tie correction
        psi = mean of tau over groups of runs that agree on everything but one hyperparameter, seed included
        Psi = mean of psi over hyperparameters

    Returns
    -------
    A tidy table; `statistic` is psi (`part` the hyperparameter, `count` its groups), Psi or tau.
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        axes = [axis for axis in _axes(table) if axis.groups]
        pairs = sum(len(axis.first) for axis in axes) + float(len(table)) ** 2
        draws = affordable(resamples, pairs * len(table.targets))
        point = np.ones((1, len(table)), dtype=np.float32)
        drawn = multiplicities(table, draws, seed)
        for target, gap in table.targets.items():
            parts: list[tuple[str, str, int, Floats, Floats]] = []
            for axis in axes:
                value, resampled = (_psi(table, gap, axis, times) for times in (point, drawn))
                parts.append((axis.name, "psi", axis.groups, value[0], resampled))
            if parts:
                mean = np.mean([value for *_, value, _ in parts], axis=0)
                means = np.mean([resampled for *_, resampled in parts], axis=0)
                parts.insert(0, ("all", "Psi", len(axes), mean, means))
            share = len(table.measures) / len(networks.measures) / len(table.targets)
            overall = _overall(table, gap, np.concatenate([point, drawn]), part_of(tick, share))
            count = len(table) * (len(table) - 1) // 2
            parts.append(("all", "tau", count, overall[0], overall[1:]))
            for part, statistic, count, value, resampled in parts:
                low, high = interval(resampled)
                rows += [
                    {
                        "measure": measure,
                        "target": target,
                        "part": part,
                        "statistic": statistic,
                        "value": value[k],
                        "low": low[k],
                        "high": high[k],
                        "count": count,
                        "available": count,
                        "rows": len(table),
                        "dropped": dropped,
                        "resamples": draws,
                    }
                    for k, measure in enumerate(table.measures)
                ]
    return tidy("kendall", rows)
