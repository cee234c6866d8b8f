"""Readings of a network of the user's own: `genbench read ./mynet.py:build`.

The network is built once, in the process that workers are forked from. Readings are cells as in a run, under
the same guard and limits, and are kept in the store under a fingerprint of the network: reading more measures
of it, or the same again, computes what is not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import msgspec

from genbench.engine.cells import Cell, Outcome, make_cell
from genbench.engine.devices import at_once
from genbench.engine.local import LocalExecutor
from genbench.engine.messages import ReadingPlace
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.scheduler import Progress, run_cells
from genbench.engine.store import Store
from genbench.engine.workers import NurseryEnded, Workers
from genbench.errors import UserError
from genbench.plugin.contract import Measure
from genbench.plugin.offers import ExecutorRequest
from genbench.plugin.registry import Entry
from genbench.runs.execute import RunOptions
from genbench.runs.plan import measure_fingerprint
from genbench.subject.version import SUBJECT_VERSION

__all__ = ["read_network"]


def read_network(
    file: Path,
    function: str,
    measures: Sequence[Entry[Measure]],
    store_path: Path,
    progress: Progress,
    *,
    seed: int = 0,
    **how: Unpack[RunOptions],
) -> dict[str, Outcome]:
    """Measure to outcome for the subject that `function` of `file` builds.

    Raises
    ------
    UserError
        If the subject cannot be built; says why.
    """
    limits, free = how["limits"], how.get("device_free")
    jobs = how.get("jobs") or os.cpu_count() or 1
    jobs = jobs if free is None else at_once(jobs, free, limits.memory)
    with Store(store_path) as store:
        scratch = store.scratch.resolve()
        workers, table = Workers(scratch, shown=True), ReadingTable(store)
        try:
            network = _built(workers, file, function, seed)
            cells = {
                entry.item.name: _reading(entry, network, f"{file}:{function}", seed) for entry in measures
            }
            outcomes = run_cells(
                cells.values(),
                store,
                table,
                lambda: LocalExecutor(ExecutorRequest(jobs, limits, scratch), workers),
                progress,
            )
        finally:
            workers.close()
            table.close()
    return {name: outcomes[cell.key] for name, cell in cells.items()}


def _built(workers: Workers, file: Path, function: str, seed: int) -> str:
    """What stands for the network in keys."""
    try:
        built = workers.build(file, function, seed)
    except NurseryEnded as end:
        raise UserError(f"{file}:{function} gives no subject: its process ended with {end}") from end
    if built.problem:
        raise UserError(f"{file}:{function} gives no subject: {built.problem}")
    return built.fingerprint


def _reading(entry: Entry[Measure], network: str, subject: str, seed: int) -> Cell:
    measure = entry.item
    return make_cell(
        READING,
        measure.name,
        {
            "subject_version": SUBJECT_VERSION,
            "measure": measure.name,
            "measure_version": measure.version,
            "code": measure_fingerprint(entry),
            "seed": seed,
            "network": network,
        },
        about={"suite": "", "quick": False, "subject": subject, "measure": measure.name},
        how=msgspec.to_builtins(ReadingPlace(entry.source, seed)),
        group=network,
        together=str(entry.source),
    )
