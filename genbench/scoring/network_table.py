"""A record table as arrays: one row per trained network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.errors import UserError
from genbench.scoring.pairs import number_rows

__all__ = ["Loss", "NetworkTable"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Loss:
    """Rows that one measure has no finite reading for; they are left out for that measure alone."""

    measure: str
    column: str
    rows: int
    infinite: int
    """Of these rows, those whose cell is infinite; the cells of the others are empty."""


@dataclass(frozen=True, eq=False)
class NetworkTable:
    """Runs with their hyperparameters, targets and readings.

    Made by `read_table` (a file), `table_from_frame` (a pandas table) or by hand from arrays. A *combo*
    is an assignment of all hyperparameters; runs of one combo differ in the seed.
    """

    hyperparameters: tuple[str, ...]
    codes: Integers
    """(rows, hyperparameters) number of the level that each run has."""
    levels: tuple[tuple[object, ...], ...]
    """Per hyperparameter, its levels in increasing order."""
    seeds: Integers
    """(rows,) number of the seed."""
    targets: dict[str, Floats]
    """(rows,) gaps by name; the first one is the gap to the test set that training data came from."""
    measures: tuple[str, ...]
    readings: Floats
    """(rows, measures) readings, oriented so that higher predicts a larger gap; NaN where there is none."""
    flipped: frozenset[str] = frozenset()
    """Measures whose readings were negated, because higher meant better."""
    logarithms: frozenset[str] = frozenset()
    """Measures that already are logarithms."""
    test_error: Floats | None = None
    test_size: Floats | None = None
    """(rows,) images behind the test accuracy of each run."""
    training_loss: Floats | None = None
    training_error: Floats | None = None
    weights: Floats | None = None
    """(rows,) number of weights; NaN where unknown, as in the two above."""
    group_by: tuple[str, ...] = ()
    """Hyperparameters that make the groups of CMS; empty for the default."""
    source: str = "the table"
    left_out: int = 0
    """Rows that were not taken because they are unconverged."""
    where: tuple[str, ...] = ()
    """Conditions that the rows were chosen by."""
    not_chosen: int = 0
    """Rows that did not meet them."""
    losses: tuple[Loss, ...] = ()
    """Measures without a finite reading somewhere."""
    lost_rows: int = 0
    """Rows that lack a finite reading of one measure or more."""
    incomplete: int = 0
    """Of these, the rows that were left out for all measures."""

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def combo(self) -> Integers:
        """(rows,) number of each run's combo."""
        return self._combos[1]

    @cached_property
    def combo_codes(self) -> Integers:
        """(combos, hyperparameters) levels of each combo."""
        return self._combos[0]

    @cached_property
    def _combos(self) -> tuple[Integers, Integers]:
        first, combo = number_rows(self.codes)
        return self.codes[first], combo

    @cached_property
    def runs(self) -> Integers:
        """(combos,) number of runs of each combo."""
        return np.bincount(self.combo, minlength=len(self.combo_codes))

    @cached_property
    def slots(self) -> tuple[Integers, NDArray[np.bool_]]:
        """(combos, most runs) rows of each combo's runs, and which slots are filled.

        A slot beyond a combo's last run repeats that run; it must never count.
        """
        order = np.argsort(self.combo, kind="stable")
        start, place = np.cumsum(self.runs) - self.runs, np.arange(self.runs.max(initial=0))
        rows = order[start[:, None] + np.minimum(place, self.runs[:, None] - 1)]
        return rows, place < self.runs[:, None]

    def combo_means(self, values: Floats, times: NDArray[np.float32]) -> Floats:
        """(resamples, combos) means over the runs of each combo, a run counting as often as it was drawn.

        Parameters
        ----------
        values : (rows,)
        times : (resamples, rows) multiplicities that sum to the number of runs in each combo.
        """
        order = np.argsort(self.combo, kind="stable")
        start = np.cumsum(self.runs) - self.runs
        return np.asarray(np.add.reduceat((times * values)[:, order], start, axis=1) / self.runs)

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Places of the hyperparameters that take more than one value here."""
        return tuple(int(i) for i in np.flatnonzero(np.ptp(self.codes, axis=0))) if len(self) else ()

    def target(self, name: str = "") -> Floats:
        """A target by name; the first for an empty name."""
        if name and name not in self.targets:
            raise UserError(f"{self.source}: no target {name!r}; there are {', '.join(self.targets)}")
        return self.targets[name] if name else next(iter(self.targets.values()))

    def describe(self, codes: ArrayLike, places: Sequence[int]) -> str:
        """Level numbers in words: `lr=0.01, depth=2`."""
        given = np.asarray(codes)
        return ", ".join(f"{self.hyperparameters[i]}={self.levels[i][given[i]]}" for i in places)

    def take(self, rows: NDArray[np.bool_]) -> NetworkTable:
        """The same table with some of its rows."""
        return replace(
            self,
            codes=self.codes[rows],
            seeds=self.seeds[rows],
            targets={name: values[rows] for name, values in self.targets.items()},
            readings=self.readings[rows],
            test_error=None if self.test_error is None else self.test_error[rows],
            test_size=None if self.test_size is None else self.test_size[rows],
            training_loss=None if self.training_loss is None else self.training_loss[rows],
            training_error=None if self.training_error is None else self.training_error[rows],
            weights=None if self.weights is None else self.weights[rows],
        )

    def select(self, measures: Sequence[str]) -> NetworkTable:
        """The same table with some of its measures."""
        places = [self.measures.index(name) for name in measures]
        return replace(self, measures=tuple(measures), readings=self.readings[:, places])

    def complete(self) -> NetworkTable:
        """Only the rows in which every measure has a finite reading."""
        complete = np.asarray(np.isfinite(self.readings).all(axis=1))
        return replace(self.take(complete), incomplete=self.incomplete + int((~complete).sum()))

    def without_gaps(self) -> Iterator[tuple[NetworkTable, int]]:
        """Tables without missing readings, each with the number of rows it lost; together all measures.

        A missing reading drops its row for its measure alone, so measures that miss the same rows are
        handled together.
        """
        finite = np.isfinite(self.readings)
        if finite.all():
            yield self, 0
            return
        patterns: dict[bytes, list[int]] = {}
        for place, column in enumerate(finite.T):
            patterns.setdefault(column.tobytes(), []).append(place)
        for members in patterns.values():
            rows = finite[:, members[0]]
            yield self.select([self.measures[i] for i in members]).take(rows), int((~rows).sum())
