"""Networks of a suite in this process, as subjects whose readings have the bits of a run's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.engine.cells import Assignment, Cell, NetworkCells, Outcome, Result, Status
from genbench.engine.executors import Ended, Note, Slot, Trip
from genbench.engine.local import LocalExecutor
from genbench.engine.readings import ReadingTable
from genbench.engine.scheduler import run_cells
from genbench.engine.steps import load_named, load_step
from genbench.engine.store import Store
from genbench.errors import NotApplicable, UserError
from genbench.keys import derive_seed
from genbench.plugin.offers import ExecutorRequest
from genbench.report.progress import silent_progress
from genbench.subject.parts import (
    CountedParts,
    Kept,
    compute_cached,
    compute_own,
    computed_here,
    function_name,
)
from genbench.subject.subject import Subject

if TYPE_CHECKING:
    from genbench.runs.execute import RunOptions
    from genbench.subject.parts import Part
    from genbench.subject.subject import TrainedNetwork
    from genbench.suites.plan import EvidencePlan
    from genbench.suites.suite import Suite

__all__ = ["SuiteParts", "SuiteSubject", "load_subject"]


class SuiteParts:
    """The shared parts of a network in this process, computed as genbench's own workers compute them."""

    def __init__(self, network: TrainedNetwork, seed: int) -> None:
        self._network = network
        self._seed = seed
        self._kept: Kept = {}
        self._refusals: dict[str, str] = {}
        self._own: dict[str, tuple[Any, frozenset[str]]] = {}
        self.counted = self._new_count()
        """What the reading at hand has taken of them."""

    def _new_count(self) -> CountedParts:
        fetch = computed_here(self._network, self._seed, self._kept, self._refusals)
        return CountedParts(self._kept, self._refusals, fetch)

    def begin(self) -> None:
        """Count anew, for the next reading."""
        self.counted = self._new_count()

    def get(self, name: str, **options: Any) -> Part:
        """The part, computed now or before."""
        return self.counted.get(name, **options)

    def own(self, function: Callable[[Subject], Any], subject: Subject) -> tuple[Any, Iterable[str]]:
        """What a plugin's function gives, computed now or before."""
        name = function_name(function)
        if name not in self._own:
            self._own[name] = compute_own(function, subject, self._seed)
        value, used = self._own[name]
        return copy.deepcopy(value), used

    def cached(
        self, key: str, function: Callable[[Subject], Any], subject: Subject
    ) -> tuple[Any, Iterable[str]]:
        """What a function gave under this key, computed now or before."""
        name = f"cached {key}"
        if name not in self._own:
            self._own[name] = compute_cached(key, function, subject, self._seed)
        value, used = self._own[name]
        return copy.deepcopy(value), used


class SuiteSubject(Subject):
    """A network of a suite: the seed of a reading is that of a run."""

    def __init__(self, network: TrainedNetwork, identity: Sequence[Any], key: str) -> None:
        self.parts = SuiteParts(network, derive_seed(*identity, key))
        super().__init__(network, self.parts)
        self._identity = [*identity, key]

    def seed_of(self, measure: str) -> int:
        """Of a reading of `measure`; a function of suite, network and measure."""
        return derive_seed(*self._identity, measure, 0)

    def __repr__(self) -> str:
        return f"<subject {self.name}: {self.m} training examples of {self.classes} classes>"


def load_subject(
    suite: Suite, plan: EvidencePlan, network: NetworkCells, store_path: Path, how: RunOptions
) -> SuiteSubject:
    """The network as a subject, taken out of its pack or the store; trained by workers if it is in neither.

    Raises
    ------
    UserError
        If it could not be made, or has no reading whatever the measure.
    """
    cells = _needed(plan, network)
    with Store(store_path) as store:
        table = ReadingTable(store)

        def executor() -> Any:
            # What comes out of a pack is copied; starting workers for that would take longer than all else.
            if plan.pack is not None:
                return _Here()
            return LocalExecutor(ExecutorRequest(1, how["limits"], store.scratch.resolve()))

        try:
            with silent_progress() as progress:
                outcomes = run_cells(cells, store, table, executor, progress)
        finally:
            table.close()
        for cell in cells[-2:]:
            if (outcome := outcomes[cell.key]).status is not Status.OK:
                raise UserError(f"{network.label} could not be made: {outcome.reason}")
        loader = load_named(plan.loader)
        folders = {
            "network": store.folder(network.network.key),
            "training": store.folder(plan.training_data.key),
        }
        loaded = loader(network.label, **folders, **network.place)
    try:
        return SuiteSubject(loaded, suite.identity, network.key)
    except NotApplicable as refusal:
        raise UserError(f"{network.label} cannot be read: {refusal}") from refusal


def _needed(plan: EvidencePlan, network: NetworkCells) -> list[Cell]:
    """The cells of one network and all that they are made of, parents first; the last two are wanted."""
    everything = {cell.key: cell for cell in plan.cells()}
    wanted = [everything.get(cell.key, cell) for cell in (plan.training_data, network.network)]
    behind: dict[str, Cell] = {}

    def follow(cell: Cell) -> None:
        for key in cell.sources.values():
            if key in everything and key not in behind:
                follow(everything[key])
                behind[key] = everything[key]

    for cell in wanted:
        follow(cell)
    ends = {cell.key: replace(cell, on_demand=False) for cell in wanted}
    return [*(cell for key, cell in behind.items() if key not in ends), *ends.values()]


class _Here:
    """Runs steps in this process; see `genbench.engine.executors.CellExecutor`."""

    def __init__(self) -> None:
        self._ended: list[Ended | Note] = []

    def free(self) -> list[Slot]:
        return [] if self._ended else [Slot("here")]

    def submit(self, slot: Slot, trip: Trip) -> None:
        for one in trip.cells:
            self._ended.append(Ended(one.cell.key, Outcome(Status.OK, result=dict(_step(one)))))

    def wait(self, seconds: float) -> list[Ended | Note]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        pass


def _step(one: Assignment) -> Result:
    cell = one.cell
    inputs = {**cell.inputs, "how": cell.how} if cell.how else cell.inputs
    return load_step(cell.step.function, inputs)(inputs, one.parents, one.out)
