"""What a second thread gives to one large cell: features of ResNet-18 at 224 px, computed by a worker.

By the clock on the wall, which is what threads are for: it needs a machine with two idle cores. The seconds
are those of the step's own passes, so that starting a worker and building the network are left out. The
processor time of all threads and of the first one is shown beside them: what a second thread costs in work,
and how much it takes off the first, on any machine. One thread's time over the first's of two is the most
that two idle cores can gain.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from safetensors.torch import save_file

from genbench.engine.cells import Assignment, Limits, Outcome, Status, Step, make_cell
from genbench.engine.compute import Compute, autocast, compute_device
from genbench.engine.executors import Ended, Trip
from genbench.engine.local import LocalExecutor
from genbench.plugin.offers import BackboneRequest, ExecutorRequest
from genbench.subject.inputs import Inputs
from genbench.zoo import timm_models
from genbench.zoo.weights import import_library

IMAGES, BATCH, ROUNDS, BAR = 64, 32, 3, 1.6
STEP = Step("features_of_a_benchmark", f"{__name__}:features", "features of ResNet-18")


def features(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """A step, as the testbed's: images in batches through the network, where and as this process computes."""
    device = compute_device()
    backbone = timm_models.BACKBONES[0].load(
        BackboneRequest(argument="resnet18", weights=Path(inputs["weights"]))
    )
    module = backbone.module.to(device)
    generator = torch.Generator("cpu").manual_seed(0)
    raw = torch.randint(0, 256, (IMAGES, 3, 64, 64), generator=generator, device="cpu").to(torch.uint8)
    images = Inputs(raw, backbone.preprocess, device=device)
    assert images.shape[1:] == (3, 224, 224)
    best, processor, first, total = float("inf"), float("inf"), float("inf"), 0.0
    with torch.inference_mode(), autocast():
        for _ in range(ROUNDS):
            began, worked, alone = time.perf_counter(), time.process_time(), time.thread_time()
            total = sum(float(module(batch).double().sum()) for batch in images.split(BATCH))
            best = min(best, time.perf_counter() - began)
            processor = min(processor, time.process_time() - worked)
            first = min(first, time.thread_time() - alone)
    took = {"seconds": best, "processor": processor, "first": first}
    return {**took, "sum": total, "threads": torch.get_num_threads()}


def outcome_of(folder: Path, weights: Path, threads: int) -> Outcome:
    cell = make_cell(STEP, "features", {"weights": str(weights), "threads": threads})
    executor = LocalExecutor(ExecutorRequest(1, Limits(600, 2**32, Compute("cpu", threads)), folder))
    try:
        executor.submit(executor.free()[0], Trip((Assignment(cell, {}, folder),)))
        while not (ended := executor.wait(1.0)):
            continue
    finally:
        executor.close()
    (end,) = ended
    assert isinstance(end, Ended)
    return end.outcome


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has nothing to share")
def test_two_threads_are_faster_than_one(
    tmp_path: Path, benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(root), str(root.parent))))
    save_file(import_library("timm").create_model("resnet18").state_dict(), tmp_path / "resnet18.safetensors")
    found = {}

    def both() -> None:
        for threads in (1, 2):
            outcome = outcome_of(tmp_path, tmp_path, threads)
            assert outcome.status is Status.OK, outcome.reason + outcome.output
            assert outcome.result["threads"] == outcome.cost.threads == threads
            found[threads] = outcome.result

    benchmark.pedantic(both, rounds=1)
    assert found[1]["sum"] == pytest.approx(found[2]["sum"], rel=1e-5)
    gain = found[1]["seconds"] / found[2]["seconds"]
    benchmark.extra_info.update(gain=gain, **{f"seconds_{n}": one["seconds"] for n, one in found.items()})
    for threads, one in found.items():
        print(
            f"{threads} threads: {one['seconds']:.2f} s, {one['processor']:.2f} s of processor time, "
            f"{one['first']:.2f} s of it the first thread's"
        )
    print(f"{gain:.2f} x, {found[1]['processor'] / found[2]['first']:.2f} x at most")
    assert gain >= BAR
