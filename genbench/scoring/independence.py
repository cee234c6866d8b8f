"""Conditional-independence score K: what a measure says beyond any two hyperparameters (002 C.2)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities
from genbench.scoring.conditioning import ConditioningSet, conditioning_sets, entropy_sum
from genbench.scoring.kendall import overall_tau
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["conditional_independence"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
_CELLS = 2**21
"""Numbers of one array; four times as many no longer fit a processor's cache, and take four times as long."""


def _ncmi(up: Floats, gap: Floats) -> Floats:
    """(resamples,) I(V_C; V_G | U_S) / H(V_G | U_S) of one set S; NaN where the entropy is 0.

    Parameters
    ----------
    up : (3, resamples, values, values) weight of pairs with V_C = + and V_G = −, 0, + in each group.
    gap : (3, resamples, values, values) the same with any V_C.
    """
    # Swapping the two runs of a pair turns both signs and the group around.
    down = np.swapaxes(up[::-1], -1, -2)
    tie = gap - up - down
    known = entropy_sum(gap.sum(axis=0)).sum(axis=(-2, -1))
    by_gap = entropy_sum(gap).sum(axis=(0, -2, -1))
    by_measure = 2 * entropy_sum(up.sum(axis=0)).sum(axis=(-2, -1))
    by_measure += entropy_sum(tie.sum(axis=0)).sum(axis=(-2, -1))
    by_both = 2 * entropy_sum(up).sum(axis=(0, -2, -1)) + entropy_sum(tie).sum(axis=(0, -2, -1))
    # Every sum is the total weight times an entropy, so the ratio needs no normalisation.
    entropy = known - by_gap
    information = by_both + known - by_gap - by_measure
    positive = entropy > 1e-12 * np.maximum(1.0, known)
    ratio = np.divide(information, entropy, out=np.full_like(entropy, np.nan), where=positive)
    return np.asarray(np.clip(ratio, 0.0, 1.0))


class _Counter:
    """Counts pairs of runs by group, each w_i·w_j times, a part of the (runs, runs) matrices at a time."""

    def __init__(
        self, networks: NetworkTable, gap: Floats, drawn: Singles, sets: list[ConditioningSet]
    ) -> None:
        rows, filled = networks.slots
        self.combos, self.width = rows.shape
        self.rows = rows.reshape(-1)
        self.gap = gap[self.rows]
        # (combos, width, resamples) multiplicity of the run in each slot, 0 in an empty one.
        slots = (drawn[:, self.rows] * filled.reshape(-1)).T
        self.weights = np.ascontiguousarray(slots.reshape(self.combos, self.width, len(drawn)))
        self.sets = sets
        self.onehot = np.concatenate([s.onehot for s in sets], axis=1)
        self.chunk = max(1, int(_CELLS / (len(self.rows) * max(len(drawn), self.width))))

    def counts(self, reading: Floats | None = None) -> list[Floats]:
        """Per set, (3, resamples, values, values) weight of pairs with V_G = −, 0, +.

        Parameters
        ----------
        reading : (rows,) counts only the pairs with V_C = + ; None counts all.
        """
        ordered = None if reading is None else reading[self.rows]
        totals = np.zeros((3, self.weights.shape[-1], self.combos, self.onehot.shape[1]))
        for start in range(0, self.combos, self.chunk):
            stop = min(start + self.chunk, self.combos)
            columns = slice(start * self.width, stop * self.width)
            if ordered is None:
                pairs = np.ones((len(self.rows), columns.stop - columns.start), dtype=np.float32)
            else:
                pairs = (ordered[:, None] > ordered[columns]).astype(np.float32)
            # A run is not paired with itself.
            pairs[np.arange(columns.start, columns.stop), np.arange(columns.stop - columns.start)] = 0.0
            difference = self.gap[:, None] - self.gap[columns]
            for number, with_sign in enumerate((difference < 0, difference == 0, difference > 0)):
                totals[number] += self._sums(pairs * with_sign, start, stop) @ self.onehot[start:stop]
        ends = np.cumsum([0, *(s.onehot.shape[1] for s in self.sets)])
        return [s.onehot.T @ totals[..., i:j] for s, (i, j) in zip(self.sets, pairwise(ends), strict=True)]

    def _sums(self, matrix: Singles, start: int, stop: int) -> Floats:
        """(resamples, combos, stop − start) Σ w_i·w_j·matrix_ij over the runs of two combos."""
        columns = matrix.reshape(len(matrix), stop - start, self.width).transpose(1, 0, 2)
        half = np.matmul(columns, self.weights[start:stop])
        blocks = half.reshape(stop - start, self.combos, self.width, -1)
        return np.asarray(np.einsum("dckr,ckr->rcd", blocks, self.weights), dtype=np.float64)


def _all_ncmi(networks: NetworkTable, gap: Floats, drawn: Singles, sets: list[ConditioningSet]) -> Floats:
    """(resamples, measures, sets)"""
    result = np.full((len(drawn), len(networks.measures), len(sets)), np.nan)
    wide = sum(s.onehot.shape[1] for s in sets)
    step = max(1, int(_CELLS / (len(networks.runs) * wide)))
    for start in range(0, len(drawn), step):
        part = slice(start, start + step)
        counter = _Counter(networks, gap, drawn[part], sets)
        gaps = counter.counts()
        for place in range(len(networks.measures)):
            ups = counter.counts(networks.readings[:, place])
            for number in range(len(sets)):
                result[part, place, number] = _ncmi(ups[number], gaps[number])
    return result


def conditional_independence(
    networks: NetworkTable,
    *,
    target: str = "",
    largest_set: int = 2,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """K of every measure, plug-in estimate over ordered pairs of distinct runs (002 C.2).

        V_C = sgn(dC), V_G = sgn(dG)        K = min over S of I(V_C; V_G | U_S) / H(V_G | U_S)

    S runs over the sets of at most `largest_set` hyperparameters, the empty one included; U_S is the pair of
    their values. K is blind to direction, a measure that is always wrong has K = 1, so the overall tau
    stands beside it.

    Returns
    -------
    A tidy table; `statistic` is K (`note` names the S of the minimum), tau (the direction) or ncmi (`part`
    names S; these have no interval).
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        sets = conditioning_sets(table, range(largest_set + 1))
        names = ["+".join(s.names) or "(empty)" for s in sets]
        combos = float(len(table.runs))
        wide = sum(s.onehot.shape[1] for s in sets)
        draws = affordable(resamples, 3 * (len(table) ** 2 + combos**2 * wide))
        gap = table.target(target)
        point = np.ones((1, len(table)), dtype=np.float32)
        values = _all_ncmi(table, gap, np.concatenate([point, multiplicities(table, draws, seed)]), sets)
        smallest = np.min(np.where(np.isnan(values), np.inf, values), axis=-1)
        smallest[np.isinf(smallest)] = np.nan
        low, high = interval(smallest[1:])
        direction = overall_tau(table, target)
        for k, measure in enumerate(table.measures):
            common = {
                "measure": measure,
                "target": target or next(iter(table.targets)),
                "part": "all",
                "rows": len(table),
                "dropped": dropped,
                "available": len(sets),
            }
            used = int(np.isfinite(values[0, k]).sum())
            least = names[int(np.nanargmin(values[0, k]))] if used else ""
            rows.append(
                {
                    **common,
                    "statistic": "K",
                    "value": smallest[0, k],
                    "low": low[k],
                    "high": high[k],
                    "count": used,
                    "resamples": draws,
                    "note": f"smallest given {least}" if used else "the gap is certain given every set",
                }
            )
            rows.append({**common, "statistic": "tau", "value": direction[k], "count": used})
            rows += [
                {**common, "part": name, "statistic": "ncmi", "value": value, "count": 1, "available": 1}
                for name, value in zip(names, values[0, k], strict=True)
            ]
    return tidy("independence", rows)
