"""What a cluster of two nodes on this machine adds to a cell, and 10,000 empty cells.

Empty cells do nothing in a guarded process of their own. They travel in trips of a hundred, as readings do.
Time is that of the processors, of this process and of all below it, divided by the two cores: on a quiet
machine the clock on the wall says the same, on a busy one it says what others do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from genbench.cluster.executor import RayExecutor
from genbench.engine.cells import Cell, Limits, Status, Step, make_cell
from genbench.engine.executors import CellExecutor
from genbench.engine.local import LocalExecutor
from genbench.engine.readings import ReadingTable
from genbench.engine.scheduler import run_cells
from genbench.engine.store import Store
from genbench.plugin.offers import ExecutorRequest
from genbench.report.progress import silent_progress

ray = pytest.importorskip("ray")

STEP = Step("empty", "empty_step:nothing", "do nothing")
MANY, FEW, TRIP, WORKERS = 10_000, 600, 100, 2
BAR = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    root = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join((str(root), str(root.parent)))
    # As local workers: Ray lets its own wait for everybody else on the machine, and its servers, which are
    # counted too, go on meanwhile.
    os.environ.update(RAY_worker_niceness="0", RAY_raylet_start_wait_time_s="300")
    size = {"num_cpus": 2, "object_store_memory": 128 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    made.add_node(**size)
    yield made.address
    made.shutdown()


def processor_seconds() -> float:
    """Of this process and all that it ever started and that still lives or was waited for."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def empty(count: int) -> list[Cell]:
    return [make_cell(STEP, str(n), {"n": n}, group=str(n // TRIP), together="all") for n in range(count)]


def took(folder: Path, count: int, make: Any) -> tuple[float, float]:
    """(wall, processor) seconds from the first cell that is handed out to the last that is stored."""
    with Store(folder) as store, silent_progress() as progress:
        table = ReadingTable(store)
        request = ExecutorRequest(WORKERS, Limits(60, 2**30), store.scratch.resolve())
        executor: CellExecutor = make(request)
        while not executor.free():
            executor.wait(0.1)
        warm = [make_cell(STEP, "warm", {"warm": n}) for n in range(WORKERS)]
        run_cells(warm, store, table, lambda: Kept(executor), progress)
        wall, processor = time.monotonic(), processor_seconds()
        outcomes = run_cells(empty(count), store, table, lambda: executor, progress)
        found = time.monotonic() - wall, processor_seconds() - processor
        table.close()
    assert {one.status for one in outcomes.values()} == {Status.OK}
    assert len(outcomes) == count
    return found


class Kept:
    """An executor that outlives a run."""

    def __init__(self, executor: CellExecutor) -> None:
        self.free, self.submit, self.wait = executor.free, executor.submit, executor.wait

    def close(self) -> None: ...


def test_overhead_of_a_cell_against_local(cluster: str, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    near = took(tmp_path / "near", FEW, LocalExecutor)
    ray.init(address=cluster, log_to_driver=False)
    far = took(tmp_path / "far", FEW, RayExecutor)
    ray.shutdown()
    each = {"local": near[1] / FEW * 1e3, "ray": far[1] / FEW * 1e3}
    print(f"processor ms a cell: {each}; wall seconds of {FEW}: local {near[0]:.1f}, ray {far[0]:.1f}")
    benchmark.extra_info.update(each)
    benchmark.pedantic(lambda: None, rounds=1)
    assert each["ray"] <= each["local"] + 6.0


def test_ten_thousand_empty_cells_take_a_minute(
    cluster: str, tmp_path: Path, benchmark: BenchmarkFixture
) -> None:
    ray.init(address=cluster, log_to_driver=False)
    wall, processor = took(tmp_path / "far", MANY, RayExecutor)
    ray.shutdown()
    print(f"{MANY:,} empty cells: {wall:.0f} s on the wall, {processor:.0f} s of processors")
    benchmark.extra_info.update(wall=wall, processor=processor)
    benchmark.pedantic(lambda: None, rounds=1)
    assert min(wall, processor / min(2, os.cpu_count() or 1)) <= BAR
