"""Brings an audit's cells to their end: networks, truths and readings, stored once as those of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Unpack

import msgspec

from genbench.audit.manifest import AuditManifest
from genbench.audit.observed import AuditReading, AuditTruth, Observed
from genbench.audit.plan import AuditPlan, readings_of
from genbench.audit.step_types import JudgedStack, StackResult
from genbench.engine.cells import Cell, Outcome, Result, Status
from genbench.engine.devices import at_once
from genbench.engine.readings import ReadingTable
from genbench.engine.scheduler import Progress, run_cells
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.packs.pack import Pack
from genbench.plugin.contract import Measure, MeasureInfo
from genbench.plugin.registry import Entry, Source
from genbench.runs.execute import RunOptions, make_executor

__all__ = ["MeasureReadings", "finish", "observe", "packed_truths", "truths_of"]

Used = TypeVar("Used")


@dataclass(frozen=True)
class MeasureReadings:
    """A measure on the networks of an audit."""

    measure: MeasureInfo
    source: Source
    observed: Observed
    failed: Mapping[str, str]
    """Network to why it has no reading, where that is the measure's fault."""


def finish(
    cells: Iterable[Cell],
    store_path: Path,
    progress: Progress,
    use: Callable[[Store, dict[str, Outcome]], Used],
    **how: Unpack[RunOptions],
) -> Used:
    """Compute the cells that are not stored, then let `use` look at the store and the outcomes."""
    limits, free = how["limits"], how.get("device_free")
    jobs = how.get("jobs") or os.cpu_count() or 1
    jobs = jobs if free is None else at_once(jobs, free, limits.memory)
    with Store(store_path) as store:
        table = ReadingTable(store)
        try:
            outcomes = run_cells(
                cells, store, table, lambda: make_executor(how, jobs, store.scratch.resolve()), progress
            )
            return use(store, outcomes)
        finally:
            table.close()


def observe(
    plan: AuditPlan,
    entries: Sequence[Entry[Measure]],
    store_path: Path,
    progress: Progress,
    **how: Unpack[RunOptions],
) -> list[MeasureReadings]:
    """Read measures on every network of an audit."""
    names = [entry.item.name for entry in entries]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UserError(f"measure {doubled[0]!r} is given twice; rename one of them")
    readings = {entry.item.name: readings_of(plan, entry) for entry in entries}
    taken = [cell for mine in readings.values() for repeats in mine.values() for cell in repeats]
    # Networks may have a reading in common.
    cells = {cell.key: cell for cell in [*plan.cells(), *taken]}.values()

    def collect(store: Store, outcomes: dict[str, Outcome]) -> list[MeasureReadings]:
        truths = truths_of(plan, outcomes)
        return [_collected(plan, entry, readings[entry.item.name], truths, outcomes) for entry in entries]

    return finish(cells, store_path, progress, collect, **how)


def packed_truths(plan: AuditPlan, pack: Pack) -> dict[str, AuditTruth]:
    """Network to what a pack says of it; nothing is unpacked."""
    entries = pack.read_as(AuditManifest).stacks
    return _truths(plan, {name: (one.trained.result, one.judged.result) for name, one in entries.items()})


def truths_of(plan: AuditPlan, outcomes: Mapping[str, Outcome]) -> dict[str, AuditTruth]:
    """Network to what is known of it."""
    cells = {one.name: (one.stack.key, one.truths.key) for one in plan.stacks}
    return _truths(plan, {k: (outcomes[a].result, outcomes[b].result) for k, (a, b) in cells.items()})


def _truths(plan: AuditPlan, results: Mapping[str, tuple[Result, Result]]) -> dict[str, AuditTruth]:
    """Out of the results, by stack, of its training and of its evaluation."""
    found = {}
    for one in plan.stacks:
        stack = msgspec.convert(results[one.name][0], StackResult)
        judged = msgspec.convert(results[one.name][1], JudgedStack)
        for network in one.networks:
            place = int(network.cells.place["place"])
            found[network.label] = AuditTruth(
                network.stressor,
                network.settings,
                judged.error[place],
                judged.test_size,
                judged.predictions[place],
                stack.kept[place],
            )
    return found


def _collected(
    plan: AuditPlan,
    entry: Entry[Measure],
    cells: Mapping[str, Sequence[Cell]],
    truths: Mapping[str, AuditTruth],
    outcomes: Mapping[str, Outcome],
) -> MeasureReadings:
    readings, failed = {}, {}
    for label, repeats in cells.items():
        first = outcomes[repeats[0].key]
        again = [outcomes[cell.key].value for cell in repeats]
        error = first.detail.get("standard_error")
        readings[label] = AuditReading(
            first.value,
            float(error) if isinstance(error, int | float) else None,
            [value for value in again if value is not None] if len(again) > 1 else [],
            "" if first.status is Status.OK else f"{first.status}: {first.reason}",
        )
        if first.status not in (Status.OK, Status.NOT_APPLICABLE):
            failed[label] = f"{first.status}: {first.reason}"
    return MeasureReadings(
        entry.item.info,
        entry.source,
        Observed.of(truths, readings, entry.item.logarithm, entry.item.higher_means),
        failed,
    )
