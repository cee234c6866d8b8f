"""A run whose readings are stored: what is left is starting, judging and the page."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "genbench", "run", "--measure", "path_norm", "--store")


def processor_seconds(store: Path) -> float:
    """Of the whole command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, str(store)], check=True, capture_output=True, env={**os.environ, "LANG": "C"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


@pytest.mark.benchmark(group="run")
def test_a_warm_run_takes_two_and_a_half_seconds(benchmark, tmp_path: Path) -> None:
    """Baseline: the same run with its figures drawn anew."""
    store = tmp_path / "store"
    processor_seconds(store)
    found: list[float] = []
    benchmark.pedantic(lambda: found.append(processor_seconds(store)), rounds=3)
    drawn = []
    for _ in range(2):
        shutil.rmtree(store / "figures")
        drawn.append(processor_seconds(store))
    benchmark.extra_info.update(
        {"processor seconds": min(found), "drawing figures": min(drawn), "ratio": min(drawn) / min(found)}
    )
    assert min(found) <= 2.5
    assert min(drawn) >= 1.3 * min(found)
