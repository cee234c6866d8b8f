"""Null distributions: what a sign-error is when readings, or residuals, are permuted among networks.

A sign-error asks of a reading only its rank. So readings without ties all have the same null distribution,
and one pass over the permutations serves every measure; measures with ties are handled once per pattern of
ties. A pass compares ranks pair by pair, for thousands of permutations at a time. Where truth and reading
are adjusted, residuals of the truth are permuted, and all measures follow from a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.adjust import Adjustment
from genbench.scoring.signed_pairs import SignedPairs

__all__ = ["PERMUTATIONS", "freedman_lane_p", "null_sign_errors", "permutation_p", "tie_pattern"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PERMUTATIONS = 20_000
_AT_ONCE = 2_000
_PAIRS_AT_ONCE = 1_000
_EQUAL = 1e-6
"""Sums of weights in single precision that differ by less are the same."""
_FEW_TIES = 0.05
"""Share of tied pairs up to which a null distribution without ties is used: it is a little wider, so p-values
are a little too large, and readings that were rounded when they were written need no pass of their own."""


def permutation_p(
    pairs: SignedPairs, readings: Floats, groups: Integers, permutations: int = PERMUTATIONS, seed: int = 0
) -> Floats:
    """(measures,) p-values of sign-errors against readings permuted within groups; one-sided, low is good.

        p = (1 + permutations with SE ≤ the observed one) / (1 + permutations)

    The same permutations for all measures. A measure that ties all pairs has p = 1.

    Parameters
    ----------
    readings : (networks, measures) without gaps.
    groups : (networks,) numbers from 0; networks of one group exchange readings.
    """
    found = np.ones(readings.shape[1])
    observed = pairs.sign_errors(readings)
    # Readings that say the same of all pairs need no permutation.
    tied = pairs.weight @ (pairs.claims(readings) == 0)
    untied = tie_pattern(np.arange(len(groups), dtype=np.float64), groups)
    patterns: dict[bytes, list[int]] = {}
    for place in np.flatnonzero(tied < 1 - _EQUAL):
        own = untied if tied[place] <= _FEW_TIES else tie_pattern(readings[:, place], groups)
        patterns.setdefault(own.tobytes(), []).append(int(place))
    if not patterns:
        return found
    sorted_ranks = [np.frombuffer(key, dtype=np.int32) for key in patterns]
    nulls = null_sign_errors(pairs, sorted_ranks, groups, permutations, seed)
    for members, null in zip(patterns.values(), nulls, strict=True):
        ordered = np.sort(null)
        below = np.searchsorted(ordered, observed[members] + _EQUAL, side="right")
        found[members] = (1 + below) / (1 + permutations)
    return found


def tie_pattern(values: Floats, groups: Integers) -> NDArray[np.int32]:
    """(networks,) ranks of all values, ties alike, sorted within each group; groups one after the other.

    Without ties it is the same for all readings where groups do not mix: only order within a group counts.
    """
    order = np.lexsort((values, groups))
    ordered, label = values[order], groups[order]
    new = np.ones(len(values), dtype=bool)
    new[1:] = label[1:] != label[:-1]
    step = np.ones(len(values), dtype=np.int32)
    step[1:] = ordered[1:] != ordered[:-1]
    ranks = np.cumsum(step) - 1
    start = np.flatnonzero(new)
    return np.asarray(ranks - np.repeat(ranks[start], np.diff(np.append(start, len(values)))), dtype=np.int32)


def null_sign_errors(
    pairs: SignedPairs,
    patterns: list[NDArray[np.int32]],
    groups: Integers,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Floats:
    """(patterns, permutations) sign-errors of permuted readings.

    Parameters
    ----------
    patterns : each (networks,), ranks sorted within each group, groups one after the other; pairs must lie
        within groups.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    kind = np.int16 if len(groups) < 2**15 else np.int32
    rows = _Rows(pairs)
    signed = pairs.signed[rows.order].astype(np.float32)
    agreement = np.zeros((len(patterns), permutations))
    for begin in range(0, permutations, _AT_ONCE):
        count = min(_AT_ONCE, permutations - begin)
        place = _permuted(order, sizes, count, generator)
        for number, pattern in enumerate(patterns):
            ranks = pattern.astype(kind)[place]
            total = np.zeros(count, dtype=np.float64)
            for row, low, high in rows:
                others = ranks[rows.second[low:high]]
                total += signed[low:high] @ (ranks[row] > others).astype(np.float32)
                total -= signed[low:high] @ (ranks[row] < others).astype(np.float32)
            agreement[number, begin : begin + count] = total
    return np.asarray(0.5 * (1 - agreement))


class _Rows:
    """Pairs by their first network: blocks of comparisons that stay in the processor's cache."""

    def __init__(self, pairs: SignedPairs) -> None:
        self.order = np.argsort(pairs.first, kind="stable")
        self.second = pairs.second[self.order]
        self._first, self._begin = np.unique(pairs.first[self.order], return_index=True)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """The first network, and where its pairs begin and end."""
        ends = np.append(self._begin[1:], len(self.second))
        return zip(self._first.tolist(), self._begin.tolist(), ends.tolist(), strict=True)

    def blocks(self, pairs: int) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
        """Rows together until there are so many pairs: where they begin and end, and the rows."""
        members: list[tuple[int, int, int]] = []
        for row in self:
            members.append(row)
            if row[2] - members[0][1] >= pairs:
                yield members[0][1], row[2], members
                members = []
        if members:
            yield members[0][1], members[-1][2], members


def _permuted(
    order: Integers, sizes: Integers, count: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """(networks, count) for each network a place in `order`, within its group: permutations.

    Parameters
    ----------
    order : networks, those of one group together; `sizes` are the numbers in each group.
    """
    place = np.zeros((len(order), count), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for start, size in zip(starts, sizes, strict=True):
        own = np.broadcast_to(np.arange(start, start + size, dtype=np.int64), (count, size))
        place[order[start : start + size]] = generator.permuted(own, axis=1).T
    return place


def freedman_lane_p(
    pairs: SignedPairs,
    residuals: Floats,
    adjusted: Adjustment,
    entering: Floats,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Floats:
    """(measures,) p-values of adjusted sign-errors (Freedman and Lane 1983); one-sided, low is good.

    Residuals of the truth are permuted within architectures, added to what was fitted, and adjusted anew: the
    fitted part drops out, and what is left is (I − H)·P·e. Without the second adjusting permuted residuals
    would lie in more dimensions than the observed ones, and too many measures would pass.

    Parameters
    ----------
    residuals : (slices, networks) of the truth; their signs are those of `pairs`.
    entering : (networks, measures) residuals of the readings.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(adjusted.architecture, kind="stable")
    sizes = np.bincount(adjusted.architecture)
    rows = _Rows(pairs)
    claims = pairs.claims(entering)
    observed = pairs.signed @ claims
    weighed = ((pairs.weight / len(residuals))[:, None] * claims)[rows.order].astype(np.float32)
    basis = adjusted.basis.astype(np.float32)
    reached = np.zeros(entering.shape[1])
    for begin in range(0, permutations, _AT_ONCE):
        place = order[_permuted(order, sizes, min(_AT_ONCE, permutations - begin), generator)]
        agreement = np.zeros((place.shape[1], entering.shape[1]))
        for own in residuals.astype(np.float32):
            drawn = own[place]
            drawn -= basis @ (basis.T @ drawn)
            for low, high, members in rows.blocks(_PAIRS_AT_ONCE):
                signs = np.empty((high - low, drawn.shape[1]), dtype=np.float32)
                for row, begin_row, end_row in members:
                    others, part = (
                        drawn[rows.second[begin_row:end_row]],
                        signs[begin_row - low : end_row - low],
                    )
                    np.greater(drawn[row], others, out=part, casting="unsafe")
                    part -= drawn[row] < others
                agreement += signs.T @ weighed[low:high]
        reached += (agreement >= observed - _EQUAL).sum(axis=0)
    # A reading that ties all pairs reaches what it has in every permutation: p = 1.
    return np.asarray((1 + reached) / (1 + permutations))
