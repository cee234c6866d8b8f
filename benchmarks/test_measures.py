"""Measures on a golden network: the 24 of paper 001 in seconds, and all of them together against one by one.

The authors' released code takes some 3.7 s for the 24 on this network on such a machine; that is written
here for comparison and is not measured. The second bar is a ratio within one run: the same measures, of one
subject that shares what they have in common, or each of a subject of its own.

Time is the processor time of this process at one thread, which leaves out what other programs take.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from safetensors.torch import load_file

import genbench
from genbench.plugin.registry import load_registry
from genbench.population.networks import NetworkInNetwork

NET_A = Path(__file__).parent.parent / "tests" / "golden" / "measures" / "net_a"
SECONDS = 0.55
"""Half of what they took before sigma was solved for by a line; the authors' code takes 3.7 s."""
RATIO = 3.0
TURNS = 5

BUILT_IN = {n: e.item for n, e in load_registry().measures.items() if e.source.kind == "built-in"}
OF_001 = [name for name, item in BUILT_IN.items() if item.paper.startswith("001")]


def network() -> genbench.Subject:
    config = json.loads((NET_A / "config.json").read_text())
    data = np.load(NET_A / "data.npz")
    models = []
    for file in ("final", "init"):
        weights = load_file(NET_A / f"{file}.safetensors")
        depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
        model = NetworkInNetwork(depth, weights["conv.weight"].shape[1], channels=3, classes=10)
        model.load_state_dict(weights, strict=False)
        models.append(model)
    assert config
    inputs, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    return genbench.Subject.from_module(models[0], initial=models[1], data=(inputs, labels))


def read(names: Iterable[str], subject: genbench.Subject) -> float:
    """Seconds for all of `names` on one subject."""
    start = time.process_time()
    for name in names:
        try:
            BUILT_IN[name](subject.fresh())
        except genbench.NotApplicable:
            assert name == "gradient_noise_var"  # it needs a trace
    return time.process_time() - start


def test_the_24_of_paper_001_take_at_most_half_of_what_they_took(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    assert len(OF_001) == 24
    best = min(read(OF_001, network()) for _ in range(TURNS))
    benchmark.pedantic(read, setup=lambda: ((OF_001, network()), {}), rounds=1)
    benchmark.extra_info.update(seconds=best)
    print(f"\nthe 24 of paper 001 on net_a: {best:.2f} s of processor time")
    assert best <= SECONDS


def test_together_is_three_times_as_fast_as_one_by_one(benchmark: BenchmarkFixture) -> None:
    torch.set_num_threads(1)
    read(BUILT_IN, network())  # warms up
    apart = sum(read([name], network()) for name in BUILT_IN)
    together = min(read(BUILT_IN, network()) for _ in range(2))
    benchmark.pedantic(read, setup=lambda: ((BUILT_IN, network()), {}), rounds=1)
    benchmark.extra_info.update(seconds=together, ratio=apart / together)
    print(
        f"\n{len(BUILT_IN)} measures on net_a: together {together:.1f} s, each alone {apart:.1f} s, "
        f"ratio {apart / together:.1f}"
    )
    assert apart >= RATIO * together
