"""Readings that share a process: each is as it would be alone, and none pays for another."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import readings
from torch import nn

import genbench
from genbench.engine.cells import Cost, Limits, Outcome, Status, make_cell
from genbench.engine.executors import Ended, Slot, Trip
from genbench.engine.guard import run_guarded
from genbench.engine.held import Asked
from genbench.engine.host import ReadingHost
from genbench.engine.messages import NetworkPlace, Reading
from genbench.engine.readings import READING, ReadingTable
from genbench.engine.scheduler import run_cells
from genbench.engine.store import Store
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Source
from genbench.subject import parts

OWN = Source(BUILT_IN, "genbench", module="genbench.plugin.builtin")
KEPT: list[torch.Tensor] = []


@pytest.fixture
def subject() -> genbench.Subject:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    return genbench.Subject.from_module(model, data=(torch.randn(40, 1, 4, 4), torch.arange(40) % 4))


LIMITS = Limits(60, 2**30)


def trip(
    subject: genbench.Subject, folder: Path, functions: list, limits: Limits = LIMITS
) -> dict[str, Outcome]:
    """Functions read as genbench's own measures are, in this order."""
    host = ReadingHost(folder, subject._network)
    host._measures = {one.__name__: Measure(one.__name__, one, "A measure.") for one in functions}
    wanted = [Reading(one.__name__, one.__name__, 1) for one in functions]
    return dict(host.read(OWN, wanted, limits))


def fine(subject) -> float:
    return float(os.getpid())


def also_fine(subject) -> float:
    return float(os.getpid())


def dies(subject) -> float:
    os._exit(5)


def dies_in_company(subject) -> float:
    if KEPT:
        os._exit(5)
    return 2.0


def keeps_memory(subject) -> float:
    KEPT.append(torch.ones(2**28 // 4))  # 256 MB
    return 1.0


def needs_memory(subject) -> float:
    # Pages of its own: the heap that this process came with may have as many to spare.
    pages = np.frombuffer(mmap.mmap(-1, 2**28, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
    pages[:] = 1
    return float(pages[0])


def needs_too_much(subject) -> float:
    # So much that no free piece of the heap that this process came with can hold it.
    return float(torch.ones(2**33 // 4)[0])


def hangs(subject) -> float:
    while True:
        time.sleep(1)


def prints(subject) -> float:
    print("mine")
    return 3.0


def test_one_process_reads_them_all_and_each_has_its_own_output(subject, tmp_path) -> None:
    found = trip(subject, tmp_path, [fine, prints, also_fine])
    assert found["fine"].value == found["also_fine"].value != os.getpid()
    assert [one.output for one in found.values()] == ["", "mine\n", ""]


def test_what_takes_the_process_down_is_read_again_alone(subject, tmp_path) -> None:
    found = trip(subject, tmp_path, [keeps_memory, dies_in_company, fine, dies, also_fine])
    assert {name: one.status for name, one in found.items() if one.status is not Status.OK} == {
        "dies": Status.CRASHED
    }
    assert "exit code 5" in found["dies"].reason
    assert found["dies_in_company"].value == 2.0, "alone, nothing of its company is there"
    assert found["fine"].value != found["also_fine"].value, "a new process after each death"


def test_time_and_memory_are_each_reading_s_own(subject, tmp_path) -> None:
    limits = Limits(1.5, 400 * 2**20)
    found = trip(subject, tmp_path, [keeps_memory, needs_memory, hangs, needs_too_much, fine], limits)
    assert {name: str(one.status) for name, one in found.items()} == {
        "keeps_memory": "ok", "needs_memory": "ok", "hangs": "timeout", "needs_too_much": "out_of_memory",
        "fine": "ok",
    }  # fmt: skip
    assert "still running after 1.5 s" in found["hangs"].reason
    # The peak of the next reading does not contain what a later process no longer holds.
    # The kernel counts resident pages in strides, so that a difference of 2**28 may read as a little less.
    assert found["needs_memory"].cost.peak_bytes > found["fine"].cost.peak_bytes + 2**27


def test_a_shared_part_is_computed_once_in_a_trip(subject, tmp_path, monkeypatch) -> None:
    log, compute, expected = tmp_path / "log", parts.compute_part, subject.margin()

    def logged(network, seed, source, name, options):
        with log.open("a") as file:
            file.write(f"{name}\n")
        return compute(network, seed, source, name, options)

    monkeypatch.setattr(parts, "compute_part", logged)

    def first(subject) -> float:
        torch.manual_seed(3)
        before = torch.get_rng_state()
        value = subject.margin()
        assert torch.equal(torch.get_rng_state(), before), "a part leaves the reading's randomness alone"
        return value

    def second(subject) -> float:
        return subject.margin()

    # Without the sandbox, which would keep the log from being written.
    found = trip(subject, tmp_path, [first, second], replace(LIMITS, sandbox=False))
    assert found["first"].value == found["second"].value == expected
    assert sorted(log.read_text().split()) == ["logits", "margins"]
    assert found["second"].cost.shared_seconds == found["first"].cost.shared_seconds > 0


def test_waiting_for_a_child_costs_next_to_nothing() -> None:
    def cost(seconds: float) -> float:
        began = time.process_time()
        assert run_guarded(lambda ask: time.sleep(seconds) or {}, Limits(60, 2**30)).status is Status.OK
        return time.process_time() - began

    # Forking takes its time in a large process, and not always the same: each is the least of some, in turns.
    rounds = [(cost(0), cost(2)) for _ in range(5)]
    start, waited = (min(costs) for costs in zip(*rounds, strict=True))
    assert waited < start + 0.01 + 0.005 * 2, "half a per cent, and what varies in starting a child"


BROKEN = """
import os, sys
import genbench
if "genbench.engine.host" in sys.modules:  # in a worker
    {}
@genbench.measure
def broken(subject):
    "Its import ends the process."
    return 1.0
"""


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("os._exit(3)", "crashed", "exit code 3"),
        ("raise ImportError('no module named gone')", "failed", "no module named gone"),
        ("while True: pass", "timeout", "still running after 2 s"),
    ],
)
def test_a_plugin_that_cannot_be_imported_fails_alone(run, tmp_path, tiny_suite, body, status, words) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.format(body))
    words_ = ("run", "-m", "./broken.py", "-m", "params", "--suite", tiny_suite, "--quick", "--timeout", "2")
    done = run(*words_, "--json", "--jobs", "1")
    assert done.returncode == 1, done.stderr
    found = {name: value for (name, _), value in readings(done.stdout).items()}
    assert found["params"][0] == "ok"
    assert found["broken"][0] == status
    assert words in found["broken"][2]


SHARING = """
import os
import genbench

def analysis(subject):
    "Two numbers of one process."
    return {"size": sum(w.numel() for w in subject.weights()), "process": os.getpid()}

@genbench.measure
def shared_size(subject):
    "The first."
    return subject.shared(analysis)["size"]

@genbench.measure
def shared_process(subject):
    "The second."
    return subject.shared(analysis)["process"]

@genbench.measure
def shared_again(subject):
    "The second again."
    assert subject.shared(analysis)["process"] != os.getpid()
    return subject.shared(analysis)["process"]

@genbench.measure
def unshared(subject):
    "A function that no other process can find."
    return subject.shared(lambda subject: 1.0)
"""


def test_measures_of_a_plugin_share_an_analysis(run, tmp_path, tiny_suite) -> None:
    (tmp_path / "sharing.py").write_text(SHARING)
    done = run("run", "-m", "./sharing.py", "--suite", tiny_suite, "--json", "--jobs", "1")
    found = readings(done.stdout)
    networks = {network for _, network in found}
    assert len(networks) == 3
    processes = {found["shared_process", network][1] for network in networks}
    assert len(processes) == 3, "one process for each network"
    for network in networks:
        assert found["shared_again", network][1] == found["shared_process", network][1]
        assert found["unshared", network][0] == "failed"
        assert "takes a function of a module" in found["unshared", network][2]
    # 4 · 9 + 4 · 4 + 4 · 4 + 4 · 10 weights of the narrowest network.
    assert min(found["shared_size", network][1] for network in networks) == 36 + 16 + 16 + 40


def test_in_a_notebook_an_analysis_is_shared_too(subject) -> None:
    calls = []

    def counted(subject) -> tuple[int, float]:
        calls.append(subject.seed)
        return len(subject.weights()), 0.5

    counted.__qualname__ = "counted"
    assert subject.shared(counted) == subject.fresh(seed=9).shared(counted) == [2, 0.5]
    assert len(calls) == 1
    assert subject.used == {"weights"}


def load_made(name: str, place: int) -> object:
    """A loader: the network at `place`."""
    if place == 13:
        raise ValueError("no such network")
    torch.manual_seed(place)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    data = torch.randn(40, 1, 4, 4), torch.arange(40) % 4
    return genbench.Subject.from_module(model, data=data)._network


def first_weight(subject) -> float:
    return float(subject.weights()[0].flatten()[0])


def dies_of_the_second(subject) -> float:
    if abs(first_weight(subject) - first_weight_of(1)) < 1e-9:
        os._exit(5)
    return 1.0


def first_weight_of(place: int) -> float:
    return float(load_made("", place).model[1].weight.detach().flatten()[0])


def asked_of(places: list[int], functions: list) -> list[Asked]:
    return [
        Asked(
            NetworkPlace(f"group {place}", f"{__name__}:load_made", "", {}, {"place": place}),
            7,
            OWN,
            [Reading(f"{one.__name__} {place}", one.__name__, 1) for one in functions],
        )
        for place in places
    ]


def take(folder: Path, places: list[int], functions: list) -> dict[str, Outcome]:
    host = ReadingHost(folder)
    host._measures = {one.__name__: Measure(one.__name__, one, "A measure.") for one in functions}
    return dict(host.take(asked_of(places, functions), LIMITS))


def test_small_networks_are_read_in_one_process_each_with_its_own_weights(tmp_path) -> None:
    found = take(tmp_path, [0, 1, 2], [fine, first_weight])
    assert len({found[f"fine {place}"].value for place in range(3)}) == 1
    for place in range(3):
        assert found[f"first_weight {place}"].value == pytest.approx(first_weight_of(place))


def test_large_networks_are_read_in_a_process_each(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("genbench.engine.host._TOGETHER_BYTES", 1)
    found = take(tmp_path, [0, 1, 2], [fine])
    assert len({one.value for one in found.values()}) == 3


def test_a_network_that_cannot_be_loaded_costs_its_own_readings_alone(tmp_path) -> None:
    found = take(tmp_path, [0, 13, 2], [fine, prints])
    failed = {key: one for key, one in found.items() if one.status is not Status.OK}
    assert set(failed) == {"fine 13", "prints 13"}
    assert all("could not be loaded: ValueError: no such network" in one.reason for one in failed.values())
    assert len(found) == 6


def test_one_that_dies_takes_no_other_network_with_it(tmp_path) -> None:
    found = take(tmp_path, [0, 1, 2], [fine, dies_of_the_second, first_weight])
    assert {key for key, one in found.items() if one.status is not Status.OK} == {"dies_of_the_second 1"}
    assert "exit code 5" in found["dies_of_the_second 1"].reason
    assert found["first_weight 2"].value == pytest.approx(first_weight_of(2))
    assert found["fine 0"].value != found["fine 2"].value, "a new process after the death"


class Counting:
    """An executor of two workers that says what it was handed; every reading takes as long as it is told."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.trips: list[list[str]] = []
        self._seconds, self._said, self._busy = seconds, [], 0

    def free(self) -> list[Slot]:
        return [Slot("0"), Slot("1")][self._busy :]

    def submit(self, slot: Slot, trip: Trip) -> None:
        self._busy += 1
        self.trips.append([one.cell.label for one in trip.cells])
        for one in trip.cells:
            cost = Cost(self._seconds[one.cell.about["measure"]])
            self._said.append(Ended(one.cell.key, Outcome(Status.OK, result={"value": 1.0}, cost=cost)))

    def wait(self, seconds: float) -> list[Ended]:
        said, self._said, self._busy = self._said, [], 0
        return said

    def close(self) -> None:
        pass


def handed_out(folder: Path, measures: dict[str, float], networks: int, plugin: str = "") -> list[list[str]]:
    cells = [
        make_cell(
            READING,
            f"{measure} {network}",
            {"measure": measure, "network": network},
            about={"measure": measure, "suite": "s", "quick": False, "subject": str(network)},
            group=f"network {network}",
            together=plugin if measure == plugin else "genbench",
        )
        for network in range(networks)
        for measure in measures
    ]
    executor = Counting(measures)
    with Store(folder / "store") as store:
        table = ReadingTable(store)
        found = run_cells(cells, store, table, lambda: executor, mock.MagicMock())
        table.close()
    assert len(found) == len(cells) == sum(map(len, executor.trips))
    return executor.trips


def test_quick_readings_of_several_networks_go_together_once_they_are_known_to_be_quick(tmp_path) -> None:
    trips = handed_out(tmp_path, {"quick": 0.1}, 24)
    assert [len(trip) for trip in trips] == [1, 1, 10, 10, 2]


def test_readings_that_take_long_go_network_by_network(tmp_path) -> None:
    assert all(len(trip) == 1 for trip in handed_out(tmp_path, {"slow": 0.6}, 6))


def test_a_trip_has_one_plugin_s_readings_and_not_too_many(tmp_path) -> None:
    trips = handed_out(tmp_path, {"quick": 0.001, "mine": 0.001}, 100, plugin="mine")
    assert max(map(len, trips)) <= 64
    assert all(len({label.partition(" ")[0] for label in trip}) == 1 for trip in trips)
