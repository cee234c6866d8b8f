"""The embedded FashionMNIST, halved: what is in the file, and that it is what the script makes."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from genbench.data.fashion14 import CLASSES, CONTENT, DATASET, FILE, FOLDER
from genbench.data.fashion14.make import balanced_rows, build, halved
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def test_a_thousand_training_images_and_ten_thousand_held_out_ones_of_balanced_classes() -> None:
    assert load_registry().datasets["fashion14"].item is DATASET
    data = DATASET.load(DataRequest())
    assert data.class_names == CLASSES
    for split, each in ((data.train, 100), (data.heldout, 1000)):
        images = split.batch(range(len(split)))
        assert (images.shape[1:], images.dtype, split.labels.dtype) == ((1, 14, 14), torch.uint8, torch.int64)
        assert torch.bincount(split.labels).tolist() == [each] * 10
        assert int(images.max()) > 250
        assert int(images.min()) == 0


def test_the_file_is_small_and_has_its_licence_beside_it() -> None:
    assert (FOLDER / FILE).stat().st_size < 2_000_000
    assert "MIT License" in (FOLDER / "LICENSE.txt").read_text(encoding="utf-8")


def test_loading_needs_no_torchvision(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert len(DATASET.load(DataRequest()).heldout) == 10_000


def test_pixels_are_means_of_four() -> None:
    image = np.array([[[10, 20, 255, 255], [30, 42, 255, 254], [0, 0, 1, 0], [0, 1, 1, 0]]], dtype=np.uint8)
    # 102 / 4 = 25.5, 1019 / 4 = 254.75, 1 / 4, 2 / 4
    assert halved(image).tolist() == [[[26, 255], [0, 1]]]


def test_as_many_of_each_class_whatever_their_share() -> None:
    labels = np.array([0] * 50 + [1] * 5 + [2] * 20)
    rows = balanced_rows(labels, 5, seed=1)
    assert np.bincount(labels[rows]).tolist() == [5, 5, 5]
    assert (np.diff(rows) > 0).all()
    assert rows.tolist() != balanced_rows(labels, 5, seed=2).tolist()


def _write_idx(file: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    file.write_bytes(gzip.compress(head + values.tobytes()))


def test_the_script_keeps_the_order_of_classes_that_the_files_have(tmp_path) -> None:
    """genbench's own reader of FashionMNIST draws another."""
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, size in (("train", 1200), ("t10k", 30)):
        labels = np.arange(size, dtype=np.uint8) % 10
        images = np.full((size, 28, 28), 5, dtype=np.uint8) * labels[:, None, None]
        _write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
        _write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
    arrays = load(build(tmp_path))
    assert arrays["train.images"].shape == (1000, 1, 14, 14)
    for split in ("train", "heldout"):
        assert (arrays[f"{split}.images"][:, 0, 3, 4] == 5 * arrays[f"{split}.labels"]).all()


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_script_makes_the_same_content_again() -> None:
    assert hashlib.sha256(build()).hexdigest() == CONTENT


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no xz", "cannot be read"), (lzma.compress(b"other"), "does not hold the images")],
)
def test_another_file_is_refused(tmp_path, content, words) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError, match=words):
        DATASET.load(DataRequest(root=tmp_path))
