"""Building the cube of suite `mini`: what it costs beside its bare forward passes, and beside the loop.

Everything is measured in processor seconds of one thread, in one run, on the networks that ship with the
suite. Degraded images are made once per data set and are not part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from genbench.data.images import ImageData
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.plugin.registry import load_registry
from genbench.suites import load_suite
from genbench.suites.evidence_packs import find_pack
from genbench.testbed.adaptation import AdaptedNetwork, read_state
from genbench.testbed.cube import class_error, class_statistics, make_cube, write_cube
from genbench.testbed.heads import fit_heads
from genbench.testbed.judged import judge
from genbench.testbed.kappa import conflict_kappa
from genbench.testbed.manifest import TestbedManifest
from genbench.testbed.suite import TestbedSuite
from genbench.zoo.features import extract_features
from genbench.zoo.loaded import LoadedBackbone

BATCH = 64


@dataclass(frozen=True)
class Images:
    """A split in memory."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Tensor:
        return self.images[indices]


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def suite() -> TestbedSuite:
    found = load_suite("mini")
    assert isinstance(found, TestbedSuite)
    return found


@pytest.fixture(scope="module")
def glyphs() -> ImageData:
    data: ImageData = load_registry().get("datasets", "glyphs").item.load(DataRequest())
    return data


def adapted(suite: TestbedSuite, name: str) -> LoadedBackbone:
    """A backbone with the adapted weights of the shipped pack."""
    from safetensors.torch import load_file

    pack = find_pack(suite)
    assert pack is not None
    entry = pack.read_as(TestbedManifest).networks[name]
    backbone = load_registry().get("backbones", name).item.load(BackboneRequest())
    network = AdaptedNetwork(backbone.module, backbone.feature_width, entry.result["classes"], 0)
    network.load_state_dict(read_state(load_file(pack.folder / entry.files["final.safetensors"].file)))
    network.backbone.eval()
    return backbone


def degraded(glyphs: ImageData, suite: TestbedSuite, every: int = 1) -> list[Images]:
    """Stand-ins for the SSIM levels: the time of a forward pass does not depend on what is in an image."""
    rows = torch.arange(0, len(glyphs.heldout), every)
    images, labels = glyphs.heldout.batch(rows), glyphs.heldout.labels[rows]
    return [Images(images, labels) for _ in suite.testbed.ssim]


def training(glyphs: ImageData, every: int = 1) -> Images:
    rows = torch.arange(0, len(glyphs.train), every)
    return Images(glyphs.train.batch(rows), glyphs.train.labels[rows])


def bare_forward_passes(backbone: LoadedBackbone, splits: list[Images]) -> None:
    """Nothing but the network, on batches that are already preprocessed and in memory."""
    with torch.inference_mode():
        for split in splits:
            for batch in split.images.split(BATCH):
                backbone.module(backbone.preprocess(batch))


def evidence(
    backbone: LoadedBackbone, suite: TestbedSuite, train: Images, levels: list[Images], folder: Path
):
    """As the steps of the testbed do it, files and all."""
    from safetensors.torch import load_file, save_file

    for i, split in enumerate([train, *levels]):
        save_file({"features": extract_features(backbone, split, BATCH)}, folder / f"{i}.safetensors")
    found = [load_file(folder / f"{i}.safetensors")["features"] for i in range(len(levels) + 1)]
    return judge(
        training=found[0],
        training_labels=train.labels,
        heldout=found[1:],
        heldout_labels=levels[0].labels,
        seen=suite.data.seen,
        zero_shot=suite.testbed.zero_shot,
        penalty=suite.testbed.penalty,
        threshold=suite.testbed.kappa_threshold,
    )


@pytest.mark.timeout(3600)
def test_the_cube_costs_little_more_than_its_forward_passes(benchmark, suite, glyphs, tmp_path) -> None:
    """Bar: at most 1.3 times the bare forward passes, over all 13 models.

    The two are measured model by model in turn, so that whatever else the machine does hits both.
    """
    train, levels = training(glyphs), degraded(glyphs, suite)
    seconds = {"bare": 0.0, "cube": 0.0}

    def build() -> None:
        for members in suite.families().values():
            backbones = [adapted(suite, name) for name in members]
            found = []
            for backbone in backbones:
                bare = processor_seconds(lambda b=backbone: bare_forward_passes(b, [train, *levels]))
                own = processor_seconds(
                    lambda b=backbone, f=found: f.append(evidence(b, suite, train, levels, tmp_path))
                )
                seconds["bare"] += bare
                seconds["cube"] += own
                print(f"\n{backbone.name}: {own:.1f} s, bare {bare:.1f} s: {own / bare:.2f}", end="")
            seconds["cube"] += processor_seconds(lambda b=backbones, f=found: _write(suite, b, f, tmp_path))

    benchmark.pedantic(build, rounds=1, iterations=1)
    ratio = seconds["cube"] / seconds["bare"]
    benchmark.extra_info.update(seconds, ratio=ratio)
    print(f"\ncube {seconds['cube']:.1f} s, bare forward passes {seconds['bare']:.1f} s: {ratio:.3f} times")
    assert ratio <= 1.3


def _write(suite: TestbedSuite, backbones: list[LoadedBackbone], found: list, folder: Path) -> None:
    error, kappa = (
        torch.stack([one[key] for one in found], dim=2).numpy() for key in ("error", "kappa_conflict")
    )
    cube = make_cube(
        class_statistics(error, kappa),
        zero_shot=[z / (50 + z) for z in suite.testbed.zero_shot],
        ssim=suite.testbed.ssim,
        weights=[backbone.weight_count for backbone in backbones],
        models=[backbone.name for backbone in backbones],
    )
    write_cube(cube, folder / "cube.nc")


def per_cell_loop(backbone: LoadedBackbone, suite: TestbedSuite, train: Images, levels: list[Images]) -> None:
    """One run of a linear-probe script per cell: features of its training and its held-out images, a head.

    The head is fitted with genbench's own solver, not with scikit-learn's slower one, so that the ratio
    shows the structure alone.
    """
    seen = suite.data.seen
    for z in suite.testbed.zero_shot:
        known = (train.labels < seen + z).nonzero()[:, 0]
        for split in levels:
            rows = (split.labels < seen + z).nonzero()[:, 0]
            with torch.inference_mode():
                own, theirs = (
                    torch.cat([backbone.module(backbone.preprocess(part)) for part in images.split(BATCH)])
                    for images in (train.images[known], split.images[rows])
                )
            (head,) = fit_heads(own.clone(), train.labels[known], [z], seen=seen)
            logits = head.logits(theirs.clone())
            class_error(split.labels[rows].numpy(), logits.argmax(dim=1).numpy(), seen + z)
            conflict_kappa(torch.softmax(logits, dim=1).numpy())


@pytest.mark.parametrize("name", ["mini-clip:short6", "mini-efficientnet:b2"])
def test_five_times_faster_than_one_forward_pass_per_cell(benchmark, suite, glyphs, tmp_path, name) -> None:
    """Bar: at least 5 times, on every third image so that the loop ends in a minute."""
    backbone = adapted(suite, name)
    train, levels = training(glyphs, 3), degraded(glyphs, suite, 3)
    loop = processor_seconds(lambda: per_cell_loop(backbone, suite, train, levels))

    def build() -> float:
        return processor_seconds(lambda: evidence(backbone, suite, train, levels, tmp_path))

    seconds = benchmark.pedantic(build, rounds=1, iterations=1)
    benchmark.extra_info.update(loop_seconds=loop, seconds=seconds, ratio=loop / seconds)
    print(f"\n{name}: loop {loop:.1f} s, genbench {seconds:.1f} s: {loop / seconds:.1f} times faster")
    assert loop / seconds >= 5
