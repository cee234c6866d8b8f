"""What streaming costs beside arrays, and what degraded images cost made anew beside stored.

Streaming: a mini backbone is adapted, its features are taken and five measures read, with images that lie in
a file as bytes and are prepared batch by batch, and with all of them prepared beforehand. Both start from the
same file, so that the array pays for its preparation too, once. Processor time of all threads; turns
alternate, and the best of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from genbench.data.tensor_file import RowFile, write_rows
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.subject import Subject
from genbench.testbed.adaptation import AdaptedNetwork, adapt
from genbench.testbed.degradations.autoencoder import Autoencoder
from genbench.testbed.degradations.networks import in_fixed_batches
from genbench.testbed.step_types import AdaptationRecipe

IMAGES = 2500
CLASSES = 25
TURNS = 3
BAR = 1.1
RECIPE = AdaptationRecipe(
    method="finetune", epochs=2, batch_size=64, learning_rate=2e-3, head_learning_rate=3e-3,
    weight_decay=0.01, stop_loss=0.0, patience=3, seed=0,
)  # fmt: skip
MEASURES = ("cross_entropy", "inverse_margin", "path_norm", "fro_over_spec", "gi_intra_l0")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """Training images of the first classes of glyphs, as a cell holds them."""
    train = load_registry().get("datasets", "glyphs").item.load(DataRequest(seed=0)).train
    rows = (train.labels < CLASSES).nonzero()[:IMAGES, 0]
    write_rows(
        tmp_path / "images.safetensors", "images", (train.batch(part) for part in rows.split(64)), len(rows),
        {"labels": train.labels[rows]},
    )  # fmt: skip
    return tmp_path / "images.safetensors"


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.parametrize("name", ["mini-efficientnet:b0", "mini-clip:short4"])
def test_streaming_costs_little_beside_arrays(name: str, training: Path, benchmark: BenchmarkFixture) -> None:
    labels = RowFile(training, "labels")[:]

    def work(prepared: bool) -> list[float]:
        backbone = load_registry().get("backbones", name).item.load(BackboneRequest())
        file = RowFile(training, "images")
        inputs = Inputs(backbone.preprocess(file[:])) if prepared else Inputs(file, backbone.preprocess)
        network = AdaptedNetwork(backbone.module, backbone.feature_width, CLASSES, 0)
        adapt(network, inputs, labels, RECIPE)
        with torch.inference_mode():
            for batch in inputs.split(64):
                network.backbone(batch)
        subject = Subject.from_module(network, data=(inputs, labels))
        return [float(load_registry().get("measures", one).item(subject)) for one in MEASURES]

    def array() -> list[float]:
        return work(prepared=True)

    def stream() -> list[float]:
        return work(prepared=False)

    assert array() == stream()  # the same bits, and everything is warm
    best = {array: float("inf"), stream: float("inf")}
    for turn in range(TURNS):
        for one in (array, stream) if turn % 2 else (stream, array):
            best[one] = min(best[one], seconds(one))
    ratio = best[stream] / best[array]
    benchmark.extra_info.update(ratio_to_arrays=ratio)
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"{name}: {best[stream]:.2f} s streamed, {best[array]:.2f} s from arrays, {ratio:.3f} ×")
    assert ratio <= BAR


def test_reading_degraded_images_costs_less_than_making_them(
    training: Path, benchmark: BenchmarkFixture
) -> None:
    """Why degraded images are stored: an image is read in less time than an autoencoder reconstructs it.

    Weights as they are drawn, since fitting them takes 40 s and changes no cost.
    """
    file, network = RowFile(training, "images"), Autoencoder(3, 4, 4).eval()
    rows = torch.arange(1024).split(64)

    def make() -> None:
        with torch.no_grad():
            for part in rows:
                in_fixed_batches(network, file[part].float() / 255)

    def read() -> None:
        for part in rows:
            file[part]

    made, taken = (min(seconds(work) for _ in range(3)) / 1024 for work in (make, read))
    benchmark.extra_info.update(made=made, read=taken)
    benchmark.pedantic(read, rounds=1)
    print(f"an image: {made * 1e6:.1f} µs made, {taken * 1e6:.1f} µs read")
    assert taken < made
