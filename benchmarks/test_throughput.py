"""Feature extraction against a bare loop over the same module, per family, in the same run.

The bare loop is the most that the module can do: the images are preprocessed beforehand and lie in memory
as float tensors, and nothing but the forward pass is timed. `extract_features` starts from raw bytes.

Time is the processor time of all threads of this process, not that of the clock on the wall: it leaves out
what other programs take from a shared machine, and charges `extract_features` in full for the thread that
prepares the next batch. On a quiet machine the ratio by the wall clock is therefore at least as good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from safetensors.torch import save_file

from genbench.plugin.offers import BackboneRequest
from genbench.zoo import clip, efficientnet, lite, mini, timm_models
from genbench.zoo.features import extract_features
from genbench.zoo.loaded import LoadedBackbone
from genbench.zoo.weights import import_library

ROUNDS = 12
BAR = 0.95


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def random_clip(folder: Path) -> LoadedBackbone:
    save_file(clip.build("RN50").state_dict(), folder / "RN50.safetensors")
    return clip.BACKBONES[0].load(BackboneRequest(weights=folder))


def random_efficientnet(folder: Path) -> LoadedBackbone:
    torch.save(efficientnet.build("b0").state_dict(), folder / "efficientnet-b0.pth")
    return efficientnet.BACKBONES[0].load(BackboneRequest(weights=folder))


def real_lite(folder: Path) -> LoadedBackbone:
    return lite.BACKBONES[0].load(BackboneRequest())


def random_timm(folder: Path) -> LoadedBackbone:
    network = import_library("timm").create_model("resnet18")
    save_file(network.state_dict(), folder / "resnet18.safetensors")
    return timm_models.BACKBONES[0].load(BackboneRequest(argument="resnet18", weights=folder))


def mini_clip(folder: Path) -> LoadedBackbone:
    return next(b for b in mini.BACKBONES if b.name == "mini-clip:short9").load(BackboneRequest())


def mini_efficientnet(folder: Path) -> LoadedBackbone:
    return next(b for b in mini.BACKBONES if b.name == "mini-efficientnet:b7").load(BackboneRequest())


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize(
    ("load", "images"),
    [
        (random_clip, 8),
        (random_efficientnet, 16),
        (real_lite, 16),
        (random_timm, 16),
        (mini_clip, 512),
        (mini_efficientnet, 512),
    ],
    ids=["clip", "efficientnet", "lite", "timm", "mini-clip", "mini-efficientnet"],
)
def test_features_flow_at_the_modules_own_speed(
    load: Callable[[Path], LoadedBackbone], images: int, tmp_path: Path, benchmark: BenchmarkFixture
) -> None:
    backbone = load(tmp_path)
    raw = torch.randint(0, 256, (images, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    raw = raw.to(torch.uint8)
    batch_size = images // 2
    prepared = backbone.preprocess(raw).split(batch_size)

    def bare() -> None:
        with torch.inference_mode():
            for batch in prepared:
                backbone.module(batch)

    def extract() -> None:
        for _ in extract_features(backbone, raw, batch_size):
            pass

    bare()  # warm up
    # Many short turns in alternating order: neighbours on the machine also cost caches and memory bandwidth,
    # at some turns more than at others, and the best of each is what it can do.
    best = {bare: float("inf"), extract: float("inf")}
    for turn in range(ROUNDS):
        for work in (bare, extract) if turn % 2 else (extract, bare):
            best[work] = min(best[work], seconds(work))
    best_bare, best_extract = best[bare], best[extract]
    ratio = best_bare / best_extract
    benchmark.extra_info.update(images_per_second=images / best_extract, ratio_to_bare_loop=ratio)
    benchmark.pedantic(extract, rounds=1)
    print(f"{backbone.name}: {images / best_extract:.1f} images/s, {ratio:.3f} of the bare loop")
    assert ratio >= BAR
