"""Environments of paper 001, pairs of combos that differ in one hyperparameter, and sums over their runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import multiplicities
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import number_rows, pair_weights, pairs_within
from genbench.scoring.progress import Tick, quiet

__all__ = [
    "Environments",
    "Sums",
    "find_environments",
    "point_sums",
    "pool_environments",
    "resampled_sums",
]

# Environments handled at once, so that a table of paper 001's size stays far below 2 GB.
_CHUNK = 2048
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Environments:
    """Unordered pairs of combos that differ in exactly one hyperparameter."""

    first: Integers
    second: Integers
    """(environments,) combos; the first has the lower level of the axis."""
    axis: Integers
    """(environments,) place of the hyperparameter that differs."""

    def __len__(self) -> int:
        return len(self.axis)


def find_environments(networks: NetworkTable) -> Environments:
    """All environments of a table, those of one hyperparameter after the other."""
    codes = networks.combo_codes
    found: list[tuple[Integers, Integers, Integers]] = []
    for axis in networks.varying:
        first, second = pairs_within(number_rows(np.delete(codes, axis, axis=1))[1])
        swap = codes[first, axis] > codes[second, axis]
        found.append(
            (np.where(swap, second, first), np.where(swap, first, second), np.full(len(first), axis))
        )
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return Environments(nothing, nothing, nothing)
    first, second, axes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Environments(first, second, axes)


class _Blocks:
    """Runs of the two combos of each environment as padded blocks: every seed against every seed."""

    def __init__(self, networks: NetworkTable, target: str, noise_filter: bool) -> None:
        self.rows, self.filled = networks.slots
        self.gap = networks.target(target)[self.rows]
        self.noise_filter = noise_filter
        size = np.zeros(len(networks)) if networks.test_size is None else networks.test_size
        name = target or next(iter(networks.targets))
        # One image moves an accuracy by 1/m and a calibration error by 2/m: by McDiarmid's inequality that
        # needs four times as many images to be as sure.
        self.size = size[self.rows] / (4 if name == "heldout_ece" else 1)

    def kappa(self, first: Integers, second: Integers) -> tuple[Floats, Floats]:
        """(environments, runs, runs) weights of pairs, and the signs of their difference in gap."""
        difference = self.gap[first][:, :, None] - self.gap[second][:, None, :]
        both = self.filled[first][:, :, None] & self.filled[second][:, None, :]
        if not self.noise_filter:
            return both.astype(np.float64), np.sign(difference)
        # Of two test sets the smaller one decides what may be noise.
        size = np.minimum(self.size[first][:, :, None], self.size[second][:, None, :])
        return np.where(both, pair_weights(difference, size), 0.0), np.sign(difference)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the pairs of each environment; SE and n_eff are ratios of them."""

    wrong: Floats
    """(measures, environments) sum of kappa·½(1 − sgn(dC)·sgn(dG))."""
    weight: Floats
    """(environments,) sum of kappa."""
    square: Floats
    """(environments,) sum of kappa²."""

    def pooled(self, label: Integers, count: int) -> Sums:
        """Environments with one label become one."""
        add = np.zeros((len(label), count))
        add[np.arange(len(label)), label] = 1.0
        return Sums(self.wrong @ add, self.weight @ add, self.square @ add)

    @property
    def n_eff(self) -> Floats:
        """(environments,) (Σ kappa)² / Σ kappa², the number of equal weights that would say as much."""
        return np.divide(self.weight**2, self.square, out=np.zeros_like(self.weight), where=self.square > 0)

    def sign_errors(self, min_n_eff: float) -> Floats:
        """(measures, environments), NaN where n_eff is too small.

        n_eff is a ratio of sums: 12 equal weights must count as 12 whatever the rounding.
        """
        kept = (self.weight > 0) & (self.n_eff >= min_n_eff * (1 - 1e-12))
        ratio = np.divide(self.wrong, self.weight, out=np.full_like(self.wrong, np.nan), where=kept)
        return np.clip(ratio, 0.0, 1.0)


def point_sums(networks: NetworkTable, target: str, noise_filter: bool, found: Environments) -> Sums:
    """The sums of the table itself."""
    blocks = _Blocks(networks, target, noise_filter)
    wrong = np.zeros((len(networks.measures), len(found)))
    weight, square = np.zeros(len(found)), np.zeros(len(found))
    for start in range(0, len(found), _CHUNK):
        part = slice(start, start + _CHUNK)
        first, second = found.first[part], found.second[part]
        kappa, sign = blocks.kappa(first, second)
        weight[part], square[part] = kappa.sum(axis=(1, 2)), np.square(kappa).sum(axis=(1, 2))
        signed = kappa * sign
        for place in range(len(networks.measures)):
            reading = networks.readings[:, place][blocks.rows]
            higher = np.sign(reading[first][:, :, None] - reading[second][:, None, :])
            agreement = np.einsum("eij,eij->e", signed, higher)
            wrong[place, part] = 0.5 * (weight[part] - agreement)
    return Sums(wrong, weight, square)


def resampled_sums(
    networks: NetworkTable,
    target: str,
    noise_filter: bool,
    found: Environments,
    resamples: int,
    seed: int,
    tick: Tick = quiet,
) -> Sums:
    """The sums of every resample: (resamples, environments), and (measures, resamples, environments)."""
    blocks = _Blocks(networks, target, noise_filter)
    drawn = multiplicities(networks, resamples, seed)
    measures = len(networks.measures)
    wrong = np.zeros((measures, resamples, len(found)), dtype=np.float32)
    weight, square = (np.zeros((resamples, len(found))) for _ in range(2))
    chunk = max(1, int(2e7 / (resamples * len(blocks.rows[0]))))
    for start in range(0, len(found), chunk):
        part = slice(start, start + chunk)
        first, second = found.first[part], found.second[part]
        kappa, sign = blocks.kappa(first, second)
        # (environments, resamples, runs)
        times_first = np.ascontiguousarray(drawn[:, blocks.rows[first]].transpose(1, 0, 2))
        times_second = np.ascontiguousarray(drawn[:, blocks.rows[second]].transpose(1, 0, 2))

        def weighed(
            matrix: Floats, left: NDArray[np.float32] = times_first, right: NDArray[np.float32] = times_second
        ) -> NDArray[np.float32]:
            return np.asarray(np.einsum("erj,erj->re", np.matmul(left, matrix.astype(np.float32)), right))

        weight[:, part], square[:, part] = weighed(kappa), weighed(np.square(kappa))
        signed = kappa * sign
        for place in range(measures):
            reading = networks.readings[:, place][blocks.rows]
            higher = np.sign(reading[first][:, :, None] - reading[second][:, None, :])
            wrong[place, :, part] = 0.5 * (weight[:, part] - weighed(signed * higher))
        tick(len(first) / len(found))
    return Sums(wrong, weight, square)  # type: ignore[arg-type]


def pool_environments(networks: NetworkTable, found: Environments) -> tuple[Environments, Integers]:
    """One environment per pair of values of a hyperparameter (001 D.3), and the label of each strict one."""
    keys = np.column_stack(
        [
            found.axis,
            networks.combo_codes[found.first, found.axis],
            networks.combo_codes[found.second, found.axis],
        ]
    )
    distinct, first, label = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return Environments(found.first[first], found.second[first], distinct[:, 0]), label.reshape(-1)
