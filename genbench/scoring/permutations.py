"""Null distributions: what a sign-error is when readings, or residuals, are permuted among networks.

A sign-error asks of a reading only its rank. So readings without ties all have the same null distribution,
and one pass over the permutations serves every measure; measures with ties are handled once per pattern of
ties. A pass compares ranks pair by pair, for thousands of permutations at a time. Where truth and reading
are adjusted, residuals of the truth are permuted, and all measures follow from a product of matrices.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.adjust import Adjustment
from genbench.scoring.signed_pairs import SignedPairs

__all__ = ["PERMUTATIONS", "freedman_lane_p", "null_sign_errors", "permutation_p", "tie_pattern"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PERMUTATIONS = 20_000
_AT_ONCE = 1_000
_PAIRS_AT_ONCE = 250
"""So that comparisons stay in the processor's cache: twice as many at once take five times as long each."""
_THREADS = min(8, os.cpu_count() or 1)
_EQUAL = 1e-9
"""Sums of weights that differ by less are the same. Families of 48, 42 and 36 networks have sums 3e-8 apart:
added up in single precision, rounding would say which permutations reach a measure."""
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

    The last ones are kept: they do not depend on readings, and a notebook that runs and then compares, or a
    board that is built and then checked, asks for the same.

    Parameters
    ----------
    patterns : each (networks,), ranks sorted within each group, groups one after the other; pairs must lie
        within groups.
    """
    about = _content(pairs.first, pairs.second, pairs.signed, groups)
    keys = [(about, pattern.tobytes(), permutations, seed) for pattern in patterns]
    found = {key: _nulls[key] for key in keys if key in _nulls}
    lacking = {key: pattern for key, pattern in zip(keys, patterns, strict=True) if key not in found}
    if lacking:
        drawn = _null_sign_errors(pairs, list(lacking.values()), groups, permutations, seed)
        found.update(zip(lacking, drawn, strict=True))
    _nulls.update(found)
    while len(_nulls) > _KEPT:
        del _nulls[next(iter(_nulls))]
    return np.stack([found[key] for key in keys])


_KEPT = 32
_nulls: dict[tuple[str, bytes, int, int], Floats] = {}
"""By pairs and groups, pattern, permutations and seed."""


def _content(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _null_sign_errors(
    pairs: SignedPairs, patterns: list[NDArray[np.int32]], groups: Integers, permutations: int, seed: int
) -> Floats:
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    kind = np.int16 if len(groups) < 2**15 else np.int32
    rows = _Rows(pairs, order)
    signed = pairs.signed[rows.order]

    def agreements(count: int, generator: np.random.Generator) -> Floats:
        place = _permuted(sizes, count, generator)
        signs = np.empty((rows.longest, count))
        found = np.zeros((len(patterns), count))
        for number, pattern in enumerate(patterns):
            ranks = pattern.astype(kind)[place]
            tied = len(np.unique(pattern + groups[order] * len(groups))) < len(groups)
            for row, low, high in rows:
                above = signs[: high - low]
                _compare(ranks[row], ranks[rows.others(low, high)], above, tied=tied)
                found[number] += signed[low:high] @ above
            if not tied:
                found[number] = 2 * found[number] - signed.sum()
        return found

    return np.asarray(0.5 * (1 - np.concatenate(_in_parts(agreements, permutations, seed), axis=1)))


def _in_parts(
    work: Callable[[int, np.random.Generator], Floats], permutations: int, seed: int
) -> list[Floats]:
    """Results of parts of the permutations, each with its own draws: the same for any number of threads."""
    counts = [min(_AT_ONCE, permutations - begin) for begin in range(0, permutations, _AT_ONCE)]
    generators = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(len(counts)))
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(work, counts, generators))


def _compare(one: NDArray[Any], others: NDArray[Any], out: Floats, *, tied: bool) -> None:
    """Signs of one − others; without ties whether it is above 0, which says as much in half the time.

    Compared as bytes and widened once: NumPy writes comparisons into an array of numbers at half the speed.
    """
    above = (one > others).view(np.int8)
    if tied:
        above -= (one < others).view(np.int8)
    np.copyto(out, above)


class _Rows:
    """Pairs by their first network: blocks of comparisons that stay in the processor's cache.

    Parameters
    ----------
    order : networks, those of one group together. Numbers of networks are places in it, so that the partners
        of a network mostly are a slice.
    """

    def __init__(self, pairs: SignedPairs, order: Integers) -> None:
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        first, second = place[pairs.first], place[pairs.second]
        self.order = np.lexsort((second, first))
        self._second = second[self.order]
        rows, begin = np.unique(first[self.order], return_index=True)
        ends = np.append(begin[1:], len(pairs))
        self._rows = list(zip(rows.tolist(), begin.tolist(), ends.tolist(), strict=True))
        self.longest = int(np.max(ends - begin, initial=0))

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """The first network, and where its pairs begin and end."""
        return iter(self._rows)

    def others(self, low: int, high: int) -> slice | Integers:
        """The second networks of these pairs."""
        start, end = int(self._second[low]), int(self._second[high - 1]) + 1
        return slice(start, end) if end - start == high - low else self._second[low:high]

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


def _permuted(sizes: Integers, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """(networks, count) permutations of places; groups of these sizes lie one after the other."""
    place = np.empty((int(sizes.sum()), count), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for start, size in zip(starts, sizes, strict=True):
        own = np.broadcast_to(np.arange(start, start + size, dtype=np.int64), (count, size))
        place[start : start + size] = generator.permuted(own, axis=1).T
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
    order = np.argsort(adjusted.architecture, kind="stable")
    sizes = np.bincount(adjusted.architecture)
    rows = _Rows(pairs, order)
    claims = pairs.claims(entering)
    observed = pairs.signed @ claims
    weighed = ((pairs.weight / len(residuals))[:, None] * claims)[rows.order]
    basis = adjusted.basis[order]
    slices = [(own[order], _tied(own, adjusted.architecture)) for own in residuals]

    def agreements(count: int, generator: np.random.Generator) -> Floats:
        place = _permuted(sizes, count, generator)
        buffer = np.empty((_PAIRS_AT_ONCE + rows.longest, count))
        found = np.zeros((count, entering.shape[1]))
        for own, tied in slices:
            left = own[place]
            left -= basis @ (basis.T @ left)
            drawn = np.rint(np.ldexp(left, adjusted.bits, out=left), out=left).astype(np.int32)
            for low, high, members in rows.blocks(_PAIRS_AT_ONCE):
                signs = buffer[: high - low]
                for row, begin, end in members:
                    part = signs[begin - low : end - low]
                    _compare(drawn[row], drawn[rows.others(begin, end)], part, tied=tied)
                of_all = signs.T @ weighed[low:high]
                found += of_all if tied else 2 * of_all - weighed[low:high].sum(axis=0)
        return found

    reached = sum(
        (part >= observed - _EQUAL).sum(axis=0) for part in _in_parts(agreements, permutations, seed)
    )
    # A reading that ties all pairs reaches what it has in every permutation: p = 1.
    return np.asarray((1 + reached) / (1 + permutations))


def _tied(values: Floats, groups: Integers) -> bool:
    """Whether two of a group have the same value."""
    return int(np.unique(np.stack([values, groups]), axis=1).shape[1]) < len(values)
