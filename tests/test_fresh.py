"""A guarded process that was started fresh gives what a forked one gives: values, ends, reasons, output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from genbench.engine import compute, guard
from genbench.engine.cells import Limits, Outcome
from genbench.engine.guard import run_work
from genbench.engine.host import ReadingHost
from genbench.engine.messages import Builder, NetworkPlace, Reading, StepWork, Task
from genbench.engine.own import NoSubject, build_own, fingerprint
from genbench.engine.works import load_network, step_work
from genbench.plugin.registry import BUILT_IN, Source, find_measure

OWN = Source(BUILT_IN, "genbench", module="genbench.plugin.builtin")
LIMITS = Limits(60, 2**30)

NETWORK = """
import torch
import genbench

def build(seed=0):
    torch.manual_seed(seed)
    layers = [torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)]
    model = torch.nn.Sequential(*layers)
    return genbench.Subject.from_module(model, data=(torch.randn(40, 1, 4, 4), torch.arange(40) % 4))

def unseeded():
    return build(torch.seed() % 2**32)

def elsewhere():
    import dataclasses
    subject = build()
    subject._network = dataclasses.replace(subject._network, device=torch.device("cuda:0"))
    return subject
"""

PLUGIN = """
import os, time
import genbench, torch

def analysis(subject):
    "What measures of this plugin share."
    return torch.randn(2, generator=subject.generator, device="cpu").tolist()

@genbench.measure(randomness="seeded")
def draws(subject):
    "A shared part of genbench's, one of the plugin's, and a draw."
    noise = torch.randn(4, generator=subject.generator, device="cpu")
    print("drew")
    return float((subject.logits() @ noise).sum()) + sum(subject.shared(analysis)) + float(torch.rand(1))

@genbench.measure
def dies(subject):
    "It takes its process with it."
    os._exit(5)

@genbench.measure
def hangs(subject):
    "It never ends."
    time.sleep(600)

@genbench.measure
def needs_too_much(subject):
    "More than a heap has."
    return float(torch.ones(2**33 // 4)[0])
"""

STEP = """
import json

def double(inputs, parents, out):
    (out / "found.json").write_text(json.dumps([2 * inputs["number"], parents["before"].name]))
    return {"twice": 2 * inputs["number"]}
"""


@pytest.fixture
def own(tmp_path: Path) -> ReadingHost:
    """A host with the network of a user's function."""
    file = tmp_path / "mynet.py"
    file.write_text(NETWORK)
    network = build_own(file, "build")
    return ReadingHost(tmp_path, network, 7, Builder(str(file), "build", fingerprint(network)))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch):
    """Calls what it is given twice: with processes that are forked, and with fresh ones."""

    def both(work):
        forked = work()
        with monkeypatch.context() as patch:
            patch.setitem(compute._STARTS, "cpu", "fresh")
            patch.delattr(guard, "run_pieces")  # what forks
            return forked, work()

    return both


def seen(outcome: Outcome) -> tuple[object, ...]:
    """All but what it took, and but for numbers of bytes in a reason."""
    return outcome.status, re.sub(r"\d{6,}", "N", outcome.reason), outcome.result, outcome.output


def test_genbenchs_own_measures_read_the_same_bits(own, fresh) -> None:
    names = ["params", "path_norm", "inverse_margin", "log_sum_of_fro_over_margin", "hessian_trace"]
    wanted = [Reading(name, name, 3) for name in names]

    forked, started = fresh(lambda: dict(own.read(OWN, wanted, LIMITS)))
    assert {name: str(one.status) for name, one in forked.items()} == dict.fromkeys(names, "ok")
    assert {name: seen(one) for name, one in started.items()} == {n: seen(one) for n, one in forked.items()}
    assert started["inverse_margin"].cost.shared_seconds > 0
    assert 2**20 < started["params"].cost.peak_bytes < 2**31


def test_a_large_starter_does_not_make_a_reading_large(own, fresh) -> None:
    """`exec` keeps the peak of the process that called it: a large worker made each reading as large."""
    ballast = bytearray(b"x") * (3 * 2**30 // 2)  # written to, so resident
    del ballast
    wanted = [Reading("params", "params", 3)]
    _, started = fresh(lambda: dict(own.read(OWN, wanted, LIMITS)))
    assert 2**20 < started["params"].cost.peak_bytes < 2**30


def test_a_plugin_reads_the_same_bits_and_ends_the_same_way(own, fresh, tmp_path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)
    entries = {entry.item.name: entry for entry in find_measure(str(file))}

    def read() -> dict[str, Outcome]:
        found = {}
        for name, seconds in {"draws": 60, "dies": 60, "hangs": 1, "needs_too_much": 60}.items():
            limits = Limits(seconds, 400 * 2**20)
            found |= dict(own.read(entries[name].source, [Reading(name, name, 3)], limits))
        own.close()
        own._plugins.clear()
        own._held.parts.clear()
        return found

    forked, started = fresh(read)
    assert {name: str(one.status) for name, one in forked.items()} == {
        "draws": "ok", "dies": "crashed", "hangs": "timeout", "needs_too_much": "out_of_memory",
    }  # fmt: skip
    assert {name: seen(one) for name, one in started.items()} == {n: seen(one) for n, one in forked.items()}
    assert started["draws"].output == "drew\n"
    assert started["hangs"].cost.seconds < 30, "the start of its process is not its time"


def test_a_step_gives_the_same_result_and_files(fresh, tmp_path, monkeypatch) -> None:
    (tmp_path / "steps_of_a_test.py").write_text(STEP)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parent.parent}")
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def step() -> Outcome:
        task = Task(
            "key", "steps_of_a_test:double", {"number": 21}, {}, {"before": "/a/folder"}, str(tmp_path)
        )
        ((_, outcome),) = run_work(StepWork(task), lambda: [step_work(task)], LIMITS)
        written.append((tmp_path / "found.json").read_text())
        (tmp_path / "found.json").unlink()
        return outcome

    forked, started = fresh(step)
    assert forked.result == {"twice": 42}
    assert seen(started) == seen(forked)
    assert written == ['[42, "folder"]'] * 2


def test_a_network_that_is_another_each_time_is_refused(own, tmp_path) -> None:
    builder = own._held.place.builder
    assert builder is not None
    assert len(load_network(NetworkPlace("", builder=builder)).labels) == 40
    place = NetworkPlace("", builder=Builder(builder.file, "unseeded", builder.fingerprint))
    with pytest.raises(NoSubject, match="another network each time"):
        load_network(place)


def test_a_network_on_a_gpu_is_refused_because_nothing_could_be_forked_from_there(own, tmp_path) -> None:
    with pytest.raises(NoSubject, match="it used cuda:0; build the network on the CPU"):
        build_own(tmp_path / "mynet.py", "elsewhere")
