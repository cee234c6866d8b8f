"""What the sandbox costs: processor time of a reading, and once of a worker, beyond the same without it.

Readings are forked and sealed as in a run; the time is that of the children, which the kernel keeps apart.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import nn

import genbench
from genbench.engine.cells import Limits
from genbench.engine.host import ReadingHost
from genbench.engine.messages import Reading
from genbench.plugin.registry import BUILT_IN, Source
from genbench.sealing.seal import missing
from genbench.sealing.visible import visible

pytestmark = pytest.mark.skipif(bool(missing()), reason="no sandbox here")

OWN = Source(BUILT_IN, "genbench", module="genbench.plugin.builtin")
LIMITS = Limits(60, 2**30)
_PAIRS = 8
PLUGIN = """
import genbench

@genbench.measure
def trivial(subject):
    "The size of the training set."
    return float(subject.m)
"""


@pytest.fixture
def subject() -> genbench.Subject:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    return genbench.Subject.from_module(model, data=(torch.randn(40, 1, 4, 4), torch.arange(40) % 4))


def processor_time(work: Callable[[], object]) -> float:
    """Of this process and of children that end meanwhile."""

    def now() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    before = now()
    work()
    return now() - before


def a_reading(subject: genbench.Subject, source: Source, limits: Limits, count: int) -> float:
    """Of readings alone, each in a process of its own."""
    name = "params" if source == OWN else "trivial"
    host = ReadingHost(Path(tempfile.mkdtemp()), subject._network)

    def read(times: int) -> None:
        for _ in range(times):
            ((_, outcome),) = host.read(source, [Reading("key", name, 1)], limits)
            assert outcome.value is not None

    def plugins_child_counts(times: int) -> Callable[[], None]:
        # What a plugin's process and its readings took is known when it ends.
        def whole() -> None:
            read(times)
            host.close()
            host._plugins.clear()

        return whole

    read(1)
    host.close()
    host._plugins.clear()
    few, many = (processor_time(plugins_child_counts(times)) for times in (5, count + 5))
    return (many - few) / count


@pytest.mark.parametrize("who", ["own", "plugin"])
def test_a_sealed_reading(
    who: str, subject: genbench.Subject, tmp_path: Path, benchmark: BenchmarkFixture
) -> None:
    file = tmp_path / "trivial.py"
    file.write_text(PLUGIN)
    source = OWN if who == "own" else Source("file", str(file), module=str(file))
    open_to_all = replace(LIMITS, sandbox=False)
    a_reading(subject, source, LIMITS, 10)  # the first of all is slower, whichever it is
    bare, sealed = [], []
    for turn in range(_PAIRS):
        for limits in (open_to_all, LIMITS) if turn % 2 else (LIMITS, open_to_all):
            (sealed if limits.sandbox else bare).append(a_reading(subject, source, limits, 40))
    differences = sorted(one - other for one, other in zip(sealed, bare, strict=True))
    cost = median(differences)
    benchmark.extra_info.update(seconds_a_reading=cost, bare=bare, sealed=sealed)
    benchmark.pedantic(lambda: None, rounds=1)
    spread = f"{1000 * differences[0]:.2f} to {1000 * differences[-1]:.2f}"
    print(f"{who}: {1000 * cost:.2f} ms a reading ({spread}; {1000 * median(bare):.2f} ms without)")
    assert cost <= 0.002


def test_a_worker(subject: genbench.Subject, benchmark: BenchmarkFixture) -> None:
    """What a worker finds out and tells the kernel before its first reading."""

    def start() -> None:
        visible.cache_clear()
        host = ReadingHost(Path(tempfile.mkdtemp()), subject._network)
        assert host._sealing(LIMITS) is not None

    took = median(processor_time(start) for _ in range(5))
    benchmark.extra_info["seconds_a_worker"] = took
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"{1000 * took:.0f} ms a worker, process {os.getpid()}")
    assert took <= 0.150
