"""Brings the cells of a run to their end, and says what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Required, TypedDict, TypeVar, Unpack

from genbench.engine.cells import Outcome, Status
from genbench.engine.devices import at_once
from genbench.engine.executors import CellExecutor
from genbench.engine.guard import Limits
from genbench.engine.readings import ReadingTable
from genbench.engine.scheduler import Progress, run_cells
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.plugin.offers import Executor, ExecutorRequest
from genbench.plugin.registry import load_registry
from genbench.runs.forecast import estimate
from genbench.runs.plan import Plan
from genbench.suites.evidence import Evidence
from genbench.suites.kind import kind_of
from genbench.suites.result import Judged, MeasureResult

__all__ = [
    "RunOptions",
    "RunResult",
    "bring_to_end",
    "execute",
    "find_evidence",
    "make_executor",
    "require_ready",
    "runs_elsewhere",
    "workers_of",
]

Result = TypeVar("Result")


class RunOptions(TypedDict, total=False):
    """How cells are brought to their end, whatever they are for."""

    jobs: int | None
    """Worker processes; None is one per core."""
    limits: Required[Limits]
    """Of one cell: time, memory, device and threads."""
    executor: str
    address: str
    """Of a cluster, for an executor that runs cells on one."""
    device_free: int | None
    """Bytes of the GPU that nothing uses now, where cells are computed on one."""


@dataclass(frozen=True)
class RunResult:
    """What a run found out."""

    plan: Plan
    evidence: Evidence
    judged: Judged
    store: Path

    @property
    def measures(self) -> list[MeasureResult]:
        """Those of the plan, then the references."""
        return list(self.judged.results)

    @property
    def asked(self) -> list[MeasureResult]:
        """Those that a person asked for."""
        return [one for one in self.judged.results if one.name in self.plan.asked]

    @property
    def sound(self) -> bool:
        """Whether every reading is a value or a reasoned refusal."""
        fine = (Status.OK, Status.NOT_APPLICABLE)
        return all(o.status in fine for one in self.judged.results for o in one.outcomes.values())


def require_ready(plan: Plan, executor: str = "local") -> None:
    """Refuse, before anything is timed or computed, what cannot be run here."""
    load_registry().get("executors", executor)
    if plan.evidence.missing:
        raise UserError(plan.evidence.missing[0])


def make_executor(how: RunOptions, jobs: int, scratch: Path, memory: int = 0) -> CellExecutor:
    """What runs the cells.

    Parameters
    ----------
    memory : bytes that the largest cell will take, if that is known.
    """
    executor: Executor = load_registry().get("executors", how.get("executor", "local")).item
    wanted = how.get("jobs") if executor.elsewhere else jobs
    return executor.create(ExecutorRequest(wanted, how["limits"], scratch, how.get("address", ""), memory))


def runs_elsewhere(how: RunOptions) -> bool:
    """Whether cells run on other machines."""
    executor: Executor = load_registry().get("executors", how.get("executor", "local")).item
    return executor.elsewhere


def workers_of(plan: Plan, store: Path, how: RunOptions) -> int:
    """Cells at once: as asked for, and on a GPU no more than its memory holds of the largest cell left."""
    jobs, free = how.get("jobs") or os.cpu_count() or 1, how.get("device_free")
    if free is None:
        return jobs
    return at_once(jobs, free, estimate(plan, store, jobs).memory_bytes or how["limits"].memory)


def bring_to_end(
    plan: Plan,
    store_path: Path,
    progress: Progress,
    use: Callable[[Store, dict[str, Outcome]], Result],
    **how: Unpack[RunOptions],
) -> Result:
    """Compute all cells of `plan` that are not stored, then let `use` look at the store and the outcomes."""
    require_ready(plan, how.get("executor", "local"))
    workers = workers_of(plan, store_path, how)
    memory = estimate(plan, store_path, workers).memory_bytes if runs_elsewhere(how) else 0
    with Store(store_path) as store:
        table = ReadingTable(store)
        try:
            outcomes = run_cells(
                plan.cells(),
                store,
                table,
                lambda: make_executor(how, workers, store.scratch.resolve(), memory),
                progress,
            )
            return use(store, outcomes)
        finally:
            table.close()


def execute(plan: Plan, store_path: Path, progress: Progress, **how: Unpack[RunOptions]) -> RunResult:
    """Bring all cells of `plan` to their end and score the measures."""
    return bring_to_end(plan, store_path, progress, partial(_result, plan), **how)


def find_evidence(plan: Plan, store_path: Path, progress: Progress, **how: Unpack[RunOptions]) -> Evidence:
    """The evidence alone, without a measure; computes only what the store does not have."""
    return bring_to_end(plan, store_path, progress, partial(_evidence, plan), **how)


def _evidence(plan: Plan, store: Store, outcomes: Mapping[str, Outcome]) -> Evidence:
    return kind_of(plan.suite).evidence(plan.evidence, plan.suite, store, outcomes)


def _result(plan: Plan, store: Store, outcomes: Mapping[str, Outcome]) -> RunResult:
    results = [
        MeasureResult(
            entry.item.info,
            entry.source,
            {
                network.label: outcomes[plan.readings[entry.item.name, network.label].key]
                for network in plan.evidence.networks
            },
        )
        for entry in plan.measures
    ]
    evidence = _evidence(plan, store, outcomes)
    return RunResult(plan, evidence, evidence.judged([*results, *plan.references.values()]), store.root)
