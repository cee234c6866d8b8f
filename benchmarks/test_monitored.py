"""Measures during training cost at most what they cost alone.

The same measures of the same network, read by `genbench.Monitor` after an epoch and by `genbench.read`
off a subject that is made for them: processor time at one thread, least of several, as a ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import nn

import genbench

RATIO = 1.05
REPEATS = 7
MEASURES = ["sharpness", "path_norm", "inverse_margin", "fro_dist"]


def least(work: Callable[[], object]) -> float:
    """Processor seconds of the quickest of several."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def test_measures_during_training_cost_what_they_cost_alone(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 144, 10)
    )
    data = torch.randn(500, 3, 16, 16), torch.arange(500) % 10
    monitor = genbench.Monitor(MEASURES, data, classes=10)
    monitor.start(model)

    def alone() -> None:
        subject = genbench.Subject.from_module(model, data=data, initial=model, classes=10)
        for name in MEASURES:
            genbench.read(name, subject, threads=None)

    alone()  # imports
    baseline = least(alone)
    during = least(lambda: monitor.step(model, 0))
    benchmark.pedantic(monitor.step, args=(model, 0), rounds=1)
    benchmark.extra_info["ratio"] = during / baseline
    assert during <= RATIO * baseline
