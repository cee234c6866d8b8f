"""Ordered pairs of runs, counted by the signs of two differences and by group, for many resamples at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from genbench.scoring.conditioning import ConditioningSet, find_views, merging
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import pairs_within
from genbench.scoring.progress import Tick, part_of, quiet

__all__ = ["MINUS", "PLUS", "ZERO", "PairCounter"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
Ranks = NDArray[np.int32]
Counts = list[Floats]
"""Per set, (3, values of j, values of i, resamples) weights of pairs (i, j), by the sign of g_i − g_j."""
Code = tuple[float, float, float]
"""What a pair with g_i − g_j < 0, = 0 and > 0 counts."""
MINUS, ZERO, PLUS = range(3)

_CELLS = 2**16
"""Numbers of one array of the innermost loop, so that a few of them stay in a processor's cache."""
_MEMORY = 2**28
"""Bytes for the sums of the measures that are counted together."""
_PAIRS = 2**14
"""Pairs that are listed at once."""
_EXACT = [(np.float32, 2**12), (np.float64, 2**26)]
"""Types of numbers, and what is left of the whole numbers that they hold exactly for each of two."""
_FEW = 1 / 400
"""Ties are listed one by one where they are at most this share of all pairs."""


class PairCounter:
    """Weights w_i·w_j of ordered pairs of distinct runs, summed over groups of pairs.

    The runs of a combo stand in a row of slots. Sums go from runs to pairs of combos, of cells of a view, of
    values of a set. All weights are whole numbers and every sum is exact, in whatever order it is taken.

    Two things spare most of the work. A pair with g_i > g_j counts 1 and one with g_i < g_j counts `base` in
    one and the same sum, which is taken apart when the cells are complete. And pairs are visited once, with i
    behind j; what they say of (j, i) follows from the counts of all pairs, which are the same for every
    measure, and from the measure's ties, which are listed. A measure with many ties is visited both ways.
    """

    def __init__(
        self, networks: NetworkTable, gap: Floats, drawn: Singles, sets: Sequence[ConditioningSet]
    ) -> None:
        rows, filled = networks.slots
        self.combos, self.width = rows.shape
        self.rows, self.filled = rows.reshape(-1), filled.reshape(-1)
        self.resamples = len(drawn)
        self.sets = sets
        self.views = find_views(networks, sets)
        most = max(int(np.bincount(v.label, weights=networks.runs).max()) for v in self.views) ** 2
        # Half of the bits of a number that is exact are for each of the two signs.
        self.dtype: Any
        self.dtype, base = next((one for one in _EXACT if most < one[1]), _EXACT[-1])
        self.base = float(base)
        runs = max(int(np.bincount(s.label, weights=networks.runs).max()) for s in sets)
        self.of_sets = np.float32 if runs**2 < 2**24 else np.float64
        self.codes = [(self.base, 0.0, 1.0)] if most < base else [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]
        # (combos, width, resamples) multiplicity of the run in each slot, 0 in an empty one.
        slots = (drawn[:, self.rows] * self.filled).T.astype(self.dtype)
        self.weights = np.ascontiguousarray(slots.reshape(self.combos, self.width, self.resamples))
        self.merge = sparse.vstack([merging(v.label, self.dtype) for v in self.views]).tocsc()
        self.gap = _ranks(gap)[self.rows]
        self.gap_ties = self._ties(self.gap)
        self.one_way = self._visited(None, self.codes, both_ways=False)[0]
        if self.gap_ties is None:
            zero = self._visited(None, [(0.0, 1.0, 0.0)], both_ways=True)[0]
            everything = [_both(one) for one in self.one_way]
            self.all_pairs = [one + other for one, other in zip(everything, zero, strict=True)]
        else:
            zero = self._listed(self.gap_ties, np.full(len(self.gap_ties[0]), ZERO))
            self.all_pairs = [_both(one + other) for one, other in zip(self.one_way, zero, strict=True)]

    @property
    def together(self) -> int:
        """How many measures are best counted at once; it changes no number."""
        cells = sum(v.cells**2 for v in self.views) * len(self.codes)
        return max(1, int(_MEMORY / max(1, cells * self.resamples * self.weights.itemsize)))

    def count(self, readings: Floats, tick: Tick = quiet) -> list[Counts]:
        """Per measure, the pairs with C_i > C_j.

        Parameters
        ----------
        readings : (rows, measures)
        tick : told of the work done.
        """
        values = np.stack([_ranks(column)[self.rows] for column in readings.T])
        ties = [self._ties(column) for column in values]
        found: list[Counts] = [[] for _ in values]
        for many in (False, True):
            own = [place for place, listed in enumerate(ties) if (listed is None) == many]
            some = part_of(tick, len(own) / len(values))
            visited = self._visited(values[own], self.codes, both_ways=many, tick=some)
            for place, counts in zip(own, visited, strict=True):
                listed = ties[place]
                found[place] = counts if listed is None else self._turned(counts, listed)
        for place, zero in enumerate(self._equal_gaps(values)):
            found[place] = [one + other for one, other in zip(found[place], zero, strict=True)]
        return found

    def _turned(self, counts: Counts, ties: tuple[Integers, Integers]) -> Counts:
        """Pairs with C_i > C_j, i behind j or before it, from those with i behind j."""
        first, second = ties
        sign = 1 + np.sign(self.gap[first] - self.gap[second])
        equal = self._listed(ties, sign)
        # i behind j and C_i < C_j is what is left; as (j, i) it has the larger C first, and the other sign.
        result = []
        for up, tie, every in zip(counts, equal, self.one_way, strict=True):
            tie[ZERO] = 0.0
            result.append(up + _swapped(every - up - tie))
        return result

    def _equal_gaps(self, values: Ranks) -> list[Counts]:
        """The pairs with C_i > C_j and g_i = g_j."""
        if self.gap_ties is None:
            return self._visited(values, [(0.0, 1.0, 0.0)], both_ways=True)
        first, second = self.gap_ties
        result = []
        for column in values:
            order = np.sign(column[first] - column[second])
            behind, before = order > 0, order < 0
            pairs = np.r_[first[behind], second[before]], np.r_[second[behind], first[before]]
            result.append(self._listed(pairs, np.full(len(pairs[0]), ZERO)))
        return result

    def _ties(self, values: Ranks) -> tuple[Integers, Integers] | None:
        """Slots (i, j) of runs of equal value, i behind j; None if they are too many to list."""
        used = np.flatnonzero(self.filled)
        sizes = np.bincount(values[used]).astype(np.float64)
        if (sizes * (sizes - 1)).sum() / 2 > _FEW * len(used) ** 2:
            return None
        before, behind = pairs_within(values[used])
        return used[behind], used[before]

    def _listed(self, pairs: tuple[Integers, Integers], sign: Integers) -> Counts:
        """Sums over listed pairs of slots."""
        slots = self.weights.reshape(-1, self.resamples)
        result = []
        for one in self.sets:
            result.append(np.zeros((3, one.values, one.values, self.resamples)))
        for start in range(0, len(sign), _PAIRS):
            first, second = (side[start : start + _PAIRS] for side in pairs)
            products = slots[first] * slots[second]
            for one, total in zip(self.sets, result, strict=True):
                value = one.label.repeat(self.width)
                place = sign[start : start + _PAIRS] * one.values + value[second]
                place = place * one.values + value[first]
                entries = np.ones(len(first), self.dtype), (place, np.arange(len(first)))
                add = sparse.csr_matrix(entries, shape=(3 * one.values**2, len(first)))
                total += (add @ products).reshape(total.shape)
        return result

    def _visited(
        self,
        values: Ranks | None,
        codes: Sequence[Code],
        *,
        both_ways: bool,
        tick: Tick = quiet,
    ) -> list[Counts]:
        """Sums over pairs of runs of different combos or slots, by a visit to all of them.

        Parameters
        ----------
        values : (measures, slots) counts the pairs with C_i > C_j; None counts all, as one measure.
        both_ways : False takes only the pairs with i behind j.
        """
        measures = 1 if values is None else len(values)
        if not measures:
            return []
        sums = [
            np.zeros((len(codes), v.cells, v.cells, measures, self.resamples), dtype=self.dtype)
            for v in self.views
        ]
        # One array for all, because new ones cost as much as their content.
        space = np.empty((self.combos, measures, self.resamples), dtype=self.dtype)
        for combo in range(self.combos):
            least = 0 if both_ways else combo
            for number, code in enumerate(codes):
                self._against(combo, values, code, both_ways, space)
                found = self._from(least) @ space[least:].reshape(self.combos - least, -1)
                start = 0
                for view, total in zip(self.views, sums, strict=True):
                    own = found[start : start + view.cells].reshape(view.cells, measures, self.resamples)
                    total[number, view.label[combo]] += own
                    start += view.cells
            # Later combos have fewer ones behind them.
            share = 1 / self.combos
            tick(share if both_ways else share * 2 * (1 - (combo + 0.5) * share))
        return [self._by_set([total[..., place, :] for total in sums], codes) for place in range(measures)]

    def _from(self, least: int) -> Any:
        """The merge of all views without the combos before one."""
        begin = self.merge.indptr[least]
        parts = self.merge.data[begin:], self.merge.indices[begin:], self.merge.indptr[least:] - begin
        return sparse.csc_matrix(parts, shape=(self.merge.shape[0], self.combos - least))

    def _against(self, combo: int, values: Ranks | None, code: Code, both_ways: bool, found: Any) -> None:
        """Fill (combos, measures, resamples): sums over the pairs of a run i of each combo, j of this one.

        One way, the combos before this one are left as they are.
        """
        mine = slice(combo * self.width, (combo + 1) * self.width)
        least = 0 if both_ways else combo
        behind = slice(least * self.width, None)
        # Runs i come last, so that inner loops are long.
        pairs = np.zeros((self.width, self.combos * self.width - least * self.width), dtype=self.dtype)
        gap, own = self.gap[behind], self.gap[mine, None]
        for weight, compare in zip(code, (np.less, np.equal, np.greater), strict=True):
            if weight:
                pairs += np.multiply(compare(gap, own), self.dtype(weight), dtype=self.dtype)
        # A run is not paired with itself, nor one way with those before it in its combo.
        among = np.ones((self.width, self.width), dtype=self.dtype)
        start = (combo - least) * self.width
        pairs[:, start : start + self.width] *= (
            among - np.eye(self.width, dtype=self.dtype) if both_ways else np.triu(among, 1)
        )
        matrices: Any = pairs[None]
        if values is not None:
            matrices = (values[:, None, behind] > values[:, mine, None]) * pairs
        step = max(1, _CELLS // (self.width * self.resamples))
        halves = np.empty((step * self.width, self.resamples), dtype=self.dtype)
        for start in range(least, self.combos, step):
            weights = self.weights[start : start + step]
            rows = slice((start - least) * self.width, (start - least + len(weights)) * self.width)
            half = halves[: rows.stop - rows.start]
            for place, matrix in enumerate(matrices):
                np.matmul(matrix[:, rows].T, self.weights[combo], out=half)
                blocks, total = half.reshape(weights.shape), found[start : start + step, place]
                np.einsum("ckr,ckr->cr", blocks, weights, out=total)

    def _by_set(self, sums: Sequence[Any], codes: Sequence[Code]) -> Counts:
        """Sums over cells, (codes, cells of j, cells of i, resamples) per view, as counts."""
        result: Counts = [np.zeros(0)] * len(self.sets)
        for view, total in zip(self.views, sums, strict=True):
            merges = {number: merging(label, self.of_sets) for number, label in view.sets.items()}
            stacked = sparse.vstack(list(merges.values())).tocsr()
            half = np.zeros((stacked.shape[0], view.cells, 3, self.resamples), dtype=self.of_sets)
            # A few cells of i at a time: both signs of every sum would not fit a cache.
            step = max(1, _CELLS // (view.cells * self.resamples))
            for start in range(0, view.cells, step):
                some = np.ascontiguousarray(total[:, :, start : start + step])
                for sign, field in self._fields(some, codes):
                    merged = stacked @ field.reshape(view.cells, -1).astype(self.of_sets, copy=False)
                    half[:, start : start + step, sign] = merged.reshape(len(merged), -1, self.resamples)
            start = 0
            for number, merge in merges.items():
                values = merge.shape[0]
                by_cell = np.moveaxis(half[start : start + values], 1, 0).reshape(view.cells, -1)
                whole = (merge @ by_cell).reshape(values, values, 3, self.resamples)
                # (values of i, values of j, signs, …) as the counts have it.
                result[number] = whole.transpose(2, 1, 0, 3).astype(np.float64, order="C")
                start += values
        return result

    def _fields(self, sums: Any, codes: Sequence[Code]) -> list[tuple[int, Any]]:
        """Sums of each sign."""
        if codes is self.codes and len(codes) == 1:
            base = self.dtype(self.base)
            minus = np.floor(sums[0] / base)
            return [(MINUS, minus), (PLUS, sums[0] - base * minus)]
        return [(code.index(1.0), one) for code, one in zip(codes, sums, strict=True)]


def _swapped(counts: Floats) -> Floats:
    """The same pairs with i and j exchanged: the signs and the groups turn around."""
    return np.swapaxes(counts[::-1], 1, 2)


def _both(counts: Floats) -> Floats:
    return np.asarray(counts + _swapped(counts))


def _ranks(values: Floats) -> Ranks:
    """Whole numbers in the order of the values, equal where those are: half as wide to compare."""
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int32)
