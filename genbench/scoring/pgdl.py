"""The score of the competition "Predicting Generalization in Deep Learning" (003 A.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities
from genbench.scoring.conditioning import ConditioningSet, conditioning_sets, entropy_sum, find_views, merging
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.progress import Tick, part_of, quiet
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pgdl_score"]

Floats = NDArray[np.float64]
# Means over seeds of equal values differ in the last bits; rounding makes them equal again.
_DECIMALS = 12
_CELLS = 2**22
"""Numbers of the sums of several resamples."""


def _ratio(both: Floats, up: Floats, larger: Floats) -> Floats:
    """(resamples,) mean over groups of I(V_C; V_G) over that of H(V_G); NaN where the latter is 0.

    Parameters
    ----------
    both, up, larger : (resamples, values, values) shares of pairs of each group with V_C = V_G = 1, V_C = 1
        and V_G = 1.
    """
    cells = (both, up - both, larger - both, 1 - up - larger + both)
    joint_entropy = -sum(entropy_sum(np.maximum(p, 0.0)) for p in cells)
    measure_entropy, gap_entropy = (-(entropy_sum(p) + entropy_sum(1 - p)) for p in (up, larger))
    information = (measure_entropy + gap_entropy - joint_entropy).mean(axis=(-2, -1))
    entropy = gap_entropy.mean(axis=(-2, -1))
    ratio = np.divide(information, entropy, out=np.full_like(entropy, np.nan), where=entropy > 1e-12)
    return np.asarray(np.clip(ratio, 0.0, 1.0))


def _kind(most: int) -> tuple[Any, int]:
    """A type of numbers of which half of the bits can hold `most`, and half of its bits."""
    kinds = ((np.uint8, 4), (np.uint16, 8), (np.uint32, 16), (np.uint64, 32))
    return next((kind, bits) for kind, bits in kinds if most < 2**bits)


class _Counter:
    """Counts ordered pairs of combos by V_C, V_G and group, one resample after the other.

    A pair with x > x' counts 1, and `base` more if its gap is the larger one too. Small whole numbers are
    added up over the cells of a view first (see `find_views`), so that both fit one byte.
    """

    def __init__(self, networks: NetworkTable, sets: list[ConditioningSet]) -> None:
        self.views = find_views(networks, sets)
        self.sets = sets
        self.dtype, self.bits = _kind(max(int(np.bincount(view.label).max()) for view in self.views))
        self.wide, self.wide_bits = _kind(max(int(np.bincount(s.label).max()) for s in sets))
        self.to_cells = [merging(view.label, self.dtype) for view in self.views]
        self.to_values = [
            sparse.vstack([merging(label, self.wide) for label in view.sets.values()]).tocsr()
            for view in self.views
        ]
        # One array for all resamples, because new ones cost as much as their content.
        combos = len(networks.runs)
        self.above = np.empty((combos, combos), dtype=np.bool_)
        self.code = np.empty((combos, combos), dtype=self.dtype)
        self.onehot = [np.eye(s.values, dtype=np.float32)[s.label] for s in sets]
        self.pairs = [np.outer(one.sum(axis=0), one.sum(axis=0)) for one in self.onehot]

    def larger(self, rank: NDArray[np.integer[Any]]) -> Any:
        """(combos, combos) 1, and `base` where the first combo's gap is larger."""
        code = np.full((len(rank), len(rank)), 1, dtype=self.dtype)
        code += np.multiply(rank[:, None] > rank, self.dtype(2**self.bits), dtype=self.dtype)
        return code

    def rows(self, rank: NDArray[np.integer[Any]], larger: Any) -> list[Any]:
        """Per view, (values of its sets, combos) pairs with x > x', those of larger gap `base` more."""
        np.greater(rank[:, None], rank, out=self.above)
        code = np.multiply(self.above.view(np.uint8), larger, out=self.code)
        found = []
        for to_cells, to_values in zip(self.to_cells, self.to_values, strict=True):
            cells = to_cells @ code
            # The sums over values are larger, so their halves are wider.
            both, up = cells >> self.bits, cells & self.dtype(2**self.bits - 1)
            found.append(to_values @ ((both.astype(self.wide) << self.wide_bits) | up))
        return found

    def shares(self, rows: list[Any]) -> Iterator[tuple[int, Floats, Floats]]:
        """Number of a set, and (resamples, values, values) shares of pairs of each group; see `_ratio`.

        Parameters
        ----------
        rows : per view, (resamples, values of its sets, combos).
        """
        for view, found in zip(self.views, rows, strict=True):
            fields = [(found >> self.wide_bits), found & self.wide(2**self.wide_bits - 1)]
            singles = [field.astype(np.float32) for field in fields]
            start = 0
            for number in view.sets:
                stop = start + self.sets[number].values
                # Whole numbers below 2^24 are added exactly in single precision.
                both, up = (
                    (field[:, start:stop] @ self.onehot[number]).astype(np.float64) for field in singles
                )
                yield number, both / self.pairs[number], up / self.pairs[number]
                start = stop


def _ranks(means: Floats) -> NDArray[np.integer[Any]]:
    """(resamples, combos) whole numbers in the order of rounded means, equal where those are."""
    rounded = np.round(means, _DECIMALS)
    order = np.argsort(rounded, axis=1)
    ordered = np.take_along_axis(rounded, order, axis=1)
    rank = np.zeros(means.shape, dtype=np.int16 if means.shape[1] < 2**15 else np.int32)
    rank[:, 1:] = np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1)
    result = np.empty_like(rank)
    np.put_along_axis(result, order, rank, axis=1)
    return result


def _all_ratios(
    networks: NetworkTable, gap: Floats, drawn: NDArray[np.float32], sets: list[ConditioningSet], tick: Tick
) -> Floats:
    """(resamples, measures, sets)"""
    result = np.full((len(drawn), len(networks.measures), len(sets)), np.nan)
    counter = _Counter(networks, sets)
    step = max(1, _CELLS // (len(networks.runs) * sum(s.values for s in sets)))
    for start in range(0, len(drawn), step):
        part = slice(start, start + step)
        gaps = _ranks(networks.combo_means(gap, drawn[part]))
        codes = [counter.larger(rank) for rank in gaps]
        # Of the gap itself: larger than another and larger than another is the same.
        own = _stacked([counter.rows(rank, code) for rank, code in zip(gaps, codes, strict=True)])
        larger = {number: share for number, share, _ in counter.shares(own)}
        for place in range(len(networks.measures)):
            ranks = _ranks(networks.combo_means(networks.readings[:, place], drawn[part]))
            found = _stacked([counter.rows(rank, code) for rank, code in zip(ranks, codes, strict=True)])
            for number, both, up in counter.shares(found):
                result[part, place, number] = _ratio(both, up, larger[number])
            tick(len(gaps) / len(drawn) / len(networks.measures))
    return result


def _stacked(rows: list[list[Any]]) -> list[Any]:
    return [np.stack(of_view) for of_view in zip(*rows, strict=True)]


def pgdl_score(
    networks: NetworkTable,
    *,
    target: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
    tick: Tick = quiet,
) -> pd.DataFrame:
    """100 · min over pairs of hyperparameters of (mean over groups of I(V_C; V_G)) / (mean of H(V_G)).

    V = 1 if x > x' else 0, over all ordered pairs of combos, a combo with itself included, as the
    competition's scorer counts; a combo's values are means over its seeds. A group is one combination of the
    two hyperparameters' values in both combos; groups weigh equally.

    Returns
    -------
    A tidy table; `statistic` is pgdl (`note` names the pair of the minimum) or cmi (`part` names the pair;
    these have no interval).
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        sets = conditioning_sets(table, [2])
        names = ["+".join(s.names) for s in sets]
        # Comparing two combos, and adding up what came of it in every view.
        draws = affordable(resamples, 8.0 * float(len(table.runs)) ** 2)
        point = np.ones((1, len(table)), dtype=np.float32)
        gap = table.target(target)
        if sets:
            drawn = np.concatenate([point, multiplicities(table, draws, seed)])
            share = len(table.measures) / len(networks.measures)
            values = 100 * _all_ratios(table, gap, drawn, sets, part_of(tick, share))
        else:
            values = np.full((1 + draws, len(table.measures), 1), np.nan)
        smallest = np.min(np.where(np.isnan(values), np.inf, values), axis=-1)
        smallest[np.isinf(smallest)] = np.nan
        low, high = interval(smallest[1:])
        why_not = "the gap is certain given every pair" if sets else "needs two hyperparameters that vary"
        for k, measure in enumerate(table.measures):
            used = int(np.isfinite(values[0, k]).sum())
            least = names[int(np.nanargmin(values[0, k]))] if used else ""
            common = {
                "measure": measure,
                "target": target or next(iter(table.targets)),
                "rows": len(table),
                "dropped": dropped,
            }
            rows.append(
                {
                    **common,
                    "part": "all",
                    "statistic": "pgdl",
                    "value": smallest[0, k],
                    "low": low[k],
                    "high": high[k],
                    "count": used,
                    "available": len(sets),
                    "resamples": draws,
                    "note": f"smallest given {least}" if used else why_not,
                }
            )
            rows += [
                {**common, "part": name, "statistic": "cmi", "value": value, "count": 1, "available": 1}
                for name, value in zip(names, values[0, k], strict=False)
            ]
    return tidy("pgdl", rows)
