"""Devices, threads and memory: chosen, told to guarded processes, recorded, and of no effect on keys."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from conftest import environment
from test_cli import assert_one_sentence
from test_records import make_record, numbers

from genbench.api.execution import workers_and_threads
from genbench.engine import compute
from genbench.engine.cells import Cost, Outcome, Status, Step, make_cell
from genbench.engine.compute import Compute, autocast, use
from genbench.engine.devices import CONTEXT_BYTES, Device, Devices, at_once, choose_device
from genbench.engine.guarded import _is_memory
from genbench.engine.store import Store, write_sealed
from genbench.errors import UserError
from genbench.leaderboard import recompute, tolerance
from genbench.leaderboard.tolerance import TOLERANCE
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.records.convert import convert
from genbench.records.record import Record

GB = 2**30
CPU = Devices([Device("cpu")], "2.0 (built without CUDA)")
TWO = Devices([Device("cuda:0", "A", 9 * GB), Device("cuda:1", "B", 5 * GB), Device("cpu")], "2.0")
MAC = Devices([Device("mps:0", "Metal"), Device("cpu")], "2.0 (built without CUDA)")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_current", Compute())


# -- which device ------------------------------------------------------------------------------------------


def test_a_device_is_chosen_by_name_and_auto_takes_the_best() -> None:
    assert choose_device("cpu").name == "cpu"
    assert choose_device("cuda", TWO) == choose_device("auto", TWO) == TWO.found[0]
    assert str(choose_device("cuda:1", TWO)) == "cuda:1 (B)"
    assert choose_device("mps", MAC) == choose_device("auto", MAC) == MAC.found[0]
    assert choose_device("auto", CPU).name == "cpu"


@pytest.mark.parametrize(
    ("name", "devices", "words"),
    [
        ("gpu", CPU, "write cpu, cuda, cuda:1, mps or auto"),
        ("cuda:x", TWO, "write cpu, cuda, cuda:1, mps or auto"),
        ("cuda", CPU, r"torch 2.0 \(built without CUDA\) sees only cpu; install the driver"),
        ("cuda:2", TWO, r"torch sees only cuda:0 \(A\), cuda:1 \(B\); choose one of these"),
        ("cuda", Devices([Device("cpu")], "2.0", "driver too old"), r"sees only cpu \(driver too old\)"),
        ("mps", TWO, r"sees only cuda:0 \(A\), cuda:1 \(B\), cpu; use a Mac"),
    ],
)
def test_a_device_that_is_not_there_is_named(name, devices, words) -> None:
    with pytest.raises(UserError, match=words):
        choose_device(name, devices)


READ = ("read", "mynet.py:build", "-m", "params", "--json")


@pytest.fixture
def network(tmp_path) -> None:
    (tmp_path / "mynet.py").write_text(LARGE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "gpu"], "write cpu, cuda, cuda:1, mps or auto"),
        (["--device", "cuda:99"], "--device cuda:99: torch"),
        (["--threads", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_options_get_one_sentence(run, network, options, words) -> None:
    done = run(*READ, *options)
    if "--threads" in options:  # click's own sentence has the usage above it
        assert done.returncode == 2
        assert words in done.stderr
    else:
        assert_one_sentence(done, words)


def test_auto_says_which_device_it_is(run, network) -> None:
    done = run(*READ, "--device", "auto")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert f"device: {row['device'].partition(' ')[0]}" in done.stderr


# -- how many at once ----------------------------------------------------------------------------------------


def test_cells_on_a_gpu_are_as_many_as_its_memory_holds() -> None:
    cell = 2 * GB - CONTEXT_BYTES
    assert [at_once(8, free * GB, cell) for free in (0, 1, 2, 5, 16, 80)] == [1, 1, 1, 2, 8, 8]
    assert at_once(3, 80 * GB, cell) == 3


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((None, None), (8, 1)),
        ((2, None), (2, 4)),
        ((3, None), (3, 2)),
        ((16, None), (16, 1)),
        ((None, 3), (2, 3)),
        ((None, 32), (1, 32)),
        ((5, 5), (5, 5)),
    ],
)
def test_workers_and_threads_share_the_cores(monkeypatch, asked, given) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert workers_and_threads(*asked) == given


# -- in a guarded process ----------------------------------------------------------------------------------


GUARDED = """
import json, os
import torch
from genbench.engine.cells import Limits
from genbench.engine.compute import Compute, compute_device
from genbench.engine.guard import run_guarded
from genbench.subject import fitting

def work(ask):
    torch.ones(2**20).sum()  # with threads that are its own
    return {"threads": torch.get_num_threads(), "budget": fitting._budget, "device": str(compute_device())}

torch.set_num_threads(1)
found = run_guarded(work, Limits(60, 2**30, Compute("cpu", 3)))
ended = run_guarded(lambda ask: os._exit(3), Limits(60, 2**30, Compute("cpu", 2)))
costs = [[one.status.value, one.cost.device, one.cost.threads] for one in (found, ended)]
print(json.dumps({"found": found.result, "costs": costs, "own": torch.get_num_threads()}))
"""


def test_a_guarded_process_has_the_threads_device_and_memory_it_is_told() -> None:
    """Forked off a process that never used threads, as hosts are: no pool of threads outlives a fork, and one
    that other tests left in this process would be waited for."""
    done = subprocess.run(
        [sys.executable, "-c", GUARDED], env=environment(), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "found": {"threads": 3, "budget": GB // 4, "device": "cpu"},
        "costs": [["ok", "cpu", 3], ["crashed", "cpu", 2]],
        "own": 1,
    }


def test_a_gpu_without_memory_is_a_lack_of_memory() -> None:
    assert _is_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert _is_memory(RuntimeError("MPS backend out of memory (MPS allocated: 5.0 GB)"))
    assert not _is_memory(RuntimeError("CUDA error: device-side assert triggered"))


def test_autocast_is_bfloat16_where_asked_for_and_part_of_the_keys_of_features() -> None:
    features, heads = Step("features", "", "", autocasts=True), Step("heads", "", "")

    def keys() -> tuple[str, str, str]:
        one = make_cell(features, "", {"level": 1})
        return one.key, make_cell(heads, "", {}, {"features": one}).key, make_cell(heads, "", {}).key

    plain, image = keys(), torch.ones(2, 2)
    with autocast():
        assert (image @ image).dtype == torch.float32
    use(Compute(threads=7))
    assert keys() == plain
    use(Compute(autocast=True))
    with autocast():
        assert (image @ image).dtype == torch.bfloat16
    assert [new == old for new, old in zip(keys(), plain, strict=True)] == [False, False, True]


def test_a_store_keeps_where_a_cell_was_computed(tmp_path) -> None:
    cell, cost = make_cell(Step("step", "", ""), "", {}), Cost(1.0, 2.0, 3, "cuda NVIDIA T4", 4)
    with Store(tmp_path / "store") as store:
        store.commit(cell, Outcome(Status.OK, cost=cost), {})
        assert store.read(cell.key).cost == cost
        old = {"seconds": 1.0, "shared_seconds": 2.0, "peak_bytes": 3}
        write_sealed(store.folder(cell.key) / "cost.json", {"cost": old, "provenance": {}})
        assert store.read(cell.key).cost == Cost(1.0, 2.0, 3, "cpu", 1)


# -- comparing ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return make_record("mine", numbers(0))


@pytest.mark.parametrize(
    ("then", "now", "processor", "randomness", "expected"),
    [
        (("cpu", 1), ("cpu", 1), "this", "none", TOLERANCE.alike),
        (("cpu", 1), ("cpu", 1), "this", "seeded", TOLERANCE.alike),
        (("cpu", 1), ("cpu", 2), "this", "none", TOLERANCE.threads),
        (("cpu", 1), ("cpu", 2), "this", "seeded", TOLERANCE.elsewhere),
        (("cpu", 1), ("cpu", 1), "another", "none", TOLERANCE.elsewhere),
        (("cpu", 1), ("cpu", 1), "", "none", TOLERANCE.elsewhere),
        (("cuda A", 1), ("cpu", 1), "this", "none", TOLERANCE.elsewhere),
        (("cuda A", 1), ("cuda A", 1), "this", "none", TOLERANCE.elsewhere),
    ],
)
def test_readings_are_compared_by_what_is_not_the_same(
    monkeypatch, recorded, then, now, processor, randomness, expected
) -> None:
    monkeypatch.setattr(tolerance, "processor", lambda: "this")
    values = copy.deepcopy(recorded)
    values["measure"]["randomness"] = randomness
    values["provenance"]["platform"]["processor"] = processor
    for reading in values["readings"]:
        reading |= {"device": then[0], "threads": then[1]}
    record = convert(values, Record)
    cost = Cost(0.0, 0.0, 0, *now)

    def compared(factor: float) -> bool:
        found = {
            ("mine", reading.subject): Outcome(Status.OK, result={"value": reading.value * factor}, cost=cost)
            for reading in record.readings
        }
        return all(one.agrees for one in recompute.compare(record, found))

    assert compared(1.0)
    assert not compared(1 + 2 * expected + 1e-12)
    assert compared(1 + expected / 2)


# -- threads -----------------------------------------------------------------------------------------------

LARGE = """
import torch
from torch import nn
import genbench

def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 4),
    )

def build():
    final, initial = network(0), network(1)
    trace = {"loss": torch.linspace(2, 0.1, 9), "accuracy": torch.linspace(0.3, 0.99, 9)}
    data = (torch.randn(64, 3, 16, 16), torch.arange(64) % 4)
    return genbench.Subject.from_module(final, initial=initial, data=data, trace=trace)
"""


def test_deterministic_measures_read_the_same_with_two_threads(run, network) -> None:
    names = [
        name
        for name, entry in load_registry().measures.items()
        if entry.source.kind == BUILT_IN and entry.item.randomness == "none"
    ]
    assert len(names) > 40
    chosen = [option for name in names for option in ("-m", name)]
    found = {}
    for threads in (1, 2):
        options = ("--threads", str(threads), "--jobs", "1", "--store", f"with{threads}", "--json")
        done = run("read", "mynet.py:build", *chosen, *options)
        assert done.returncode == 0, done.stderr
        found[threads] = {row["measure"]: row for row in json.loads(done.stdout)}
        assert {(row["device"], row["threads"]) for row in found[threads].values()} == {("cpu", threads)}
    values = [{name: row["value"] for name, row in found[threads].items()} for threads in (1, 2)]
    assert sum(value is not None for value in values[0].values()) > 40
    for name in names:
        assert found[1][name]["reason"] == found[2][name]["reason"]
        one, two = values[0][name], values[1][name]
        assert (one is None) == (two is None)
        assert one is None or math.isclose(one, two, rel_tol=1e-6), name
    assert values[0] != values[1], "too small a network: no sum ran in another order"
