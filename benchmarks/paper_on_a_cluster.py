"""The paper's experiment on 1, 8 and 64 GPU workers, simulated: hours, bytes, memory, and what it waits for.

    python benchmarks/paper_on_a_cluster.py [--gpu 4e12] [--network 1.25e9] [SUITE …]

What is measured: the multiplications that a core of this machine does in a second, which give each cell its
seconds of a core (`genbench.testbed.forecast`, as `genbench plan` has it). What
is assumed: the multiplications of a GPU in a second (4e12: two fifths of an A100's 1e13 in float32, no TF32)
and a network of 10 Gbit/s out of the machine with the store. Cells are given to workers as `run_cells` does,
the first that is ready to the first that is free; every worker is a node of its own and fetches a file once.
Transfers do not wait for each other, but all of them together take no less than the network needs for them.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from genbench.engine.cells import Cell
from genbench.suites import load_suite
from genbench.suites.kind import kind_of
from genbench.suites.plan import CellForecast
from genbench.testbed.forecast import core_rate, forecast_cells, image_counts, probe

SUITES = ("cifar100-clip", "cifar100-efficientnet", "imagenet100-clip", "imagenet100-efficientnet")
WORKERS = (1, 8, 64)
ON_GPU = {"adapted", "features", "network_evidence"}
"""Steps that are passes of a network; the others are computed by a core of the worker's node."""
RAY_SECONDS = 0.02
"""A cell's way to a node and back, without its files: assumed; `benchmarks/test_cluster.py` measures it."""
DISK = 5e8
"""Bytes a second that the driver checks and stores."""


@dataclass
class Simulated:
    """What came of it."""

    hours: float = 0.0
    moved: float = 0.0
    """Bytes, to nodes and back."""
    memory: int = 0
    """Bytes of the largest cell."""
    spent: Counter[str] = field(default_factory=Counter)
    """Worker seconds by what they went into."""

    def sentence(self, workers: int) -> str:
        """One row of the table."""
        total = sum(self.spent.values())
        shares = ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in self.spent.most_common(3))
        numbers = f"{self.hours:.1f} | {self.moved / 1e9:.0f} | {self.memory / 2**30:.1f}"
        return f"| {workers} | {numbers} | {shares} |"


def simulate(
    cells: Sequence[Cell], told: Mapping[str, CellForecast], workers: int, speedup: float, network: float
) -> Simulated:
    """List scheduling."""
    result = Simulated()
    children: dict[str, list[Cell]] = {}
    waiting = {}
    here = {cell.key for cell in cells}
    for cell in cells:
        parents = [key for key in cell.sources.values() if key in here]
        waiting[cell.key] = len(parents)
        for key in parents:
            children.setdefault(key, []).append(cell)
    place = {cell.key: n for n, cell in enumerate(cells)}
    ready = [(0.0, place[cell.key]) for cell in cells if not waiting[cell.key]]
    heapq.heapify(ready)
    free = [(0.0, worker) for worker in range(workers)]
    has: list[set[str]] = [set() for _ in range(workers)]
    end = 0.0
    while ready:
        since, number = heapq.heappop(ready)
        cell, (idle, worker) = cells[number], heapq.heappop(free)
        begin = max(since, idle)
        result.spent["waiting for parents"] += max(0.0, since - idle)
        lacking = sum(told[k].disk_bytes for k in cell.sources.values() if k in told and k not in has[worker])
        has[worker].update(cell.sources.values())
        fetched = begin + lacking / network
        result.spent["fetching"] += fetched - begin
        one = told[cell.key]
        seconds = one.seconds / (speedup if cell.step.name in ON_GPU else 1.0)
        result.spent[cell.step.title] += seconds
        computed = fetched + RAY_SECONDS + seconds
        stored = computed + one.disk_bytes / network + one.disk_bytes / DISK
        result.moved += lacking + one.disk_bytes
        heapq.heappush(free, (computed, worker))
        end = max(end, stored)
        for child in children.get(cell.key, ()):
            waiting[child.key] -= 1
            if not waiting[child.key]:
                heapq.heappush(ready, (stored, place[child.key]))
    result.hours = max(end, result.moved / network) / 3600
    result.memory = max(one.memory_bytes for one in told.values())
    result.spent["idle at the end"] += sum(end - idle for idle, _ in free)
    return result


def main() -> None:
    """Print a table for each suite."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("suites", nargs="*", default=SUITES)
    words.add_argument("--gpu", type=float, default=4e12, help="multiplications a second")
    words.add_argument("--network", type=float, default=1.25e9, help="bytes a second")
    asked = words.parse_args()
    torch.set_num_threads(1)
    rate = core_rate()
    for name in asked.suites:
        suite = load_suite(name)
        plan = kind_of(suite).plan(suite)
        cells = plan.cells()
        # One rate throughout: where it comes out lower, on a busy machine, the GPU gains as much.
        backbones = sorted({str(cell.inputs["backbone"]) for cell in cells if "backbone" in cell.inputs})
        speeds = probe(backbones, rate)
        told = forecast_cells(suite, cells, speeds, image_counts(suite))  # type: ignore[arg-type]
        core = sum(one.seconds for one in told.values()) / 3600
        print(f"\n{name}: {len(cells)} cells, {core:,.0f} hours of one core\n")
        print("| GPU workers | hours | GB moved | GB of memory a cell | where a worker's time goes |")
        print("| --- | --- | --- | --- | --- |")
        for workers in WORKERS:
            found = simulate(cells, told, workers, asked.gpu / rate, asked.network)
            print(found.sentence(workers))


if __name__ == "__main__":
    main()
