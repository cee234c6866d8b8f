"""The published data sets, read from files in their published formats that the tests write themselves."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from genbench.data import folder, imagenet, torchvision_sets
from genbench.data.images import ImageData
from genbench.data.plain_pickle import NotPlain, read_plain_pickle
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest, Dataset
from genbench.zoo.weights import import_library

SETS: dict[str, Dataset] = {d.name: d for m in (torchvision_sets, folder, imagenet) for d in m.DATASETS}
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100 = [f"kind_{i:02d}" for i in range(100)]


@pytest.fixture(autouse=True)
def _own_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GENBENCH_DATA", str(tmp_path / "default"))


def pictures(count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, (count, *shape)).astype(np.uint8)


def original(data: ImageData, names: list[str] | tuple[str, ...], split: str = "train") -> list[int]:
    """The labels as the files had them, found through the class names."""
    return [names.index(data.class_names[label]) for label in getattr(data, split).labels.tolist()]


# --- writers, each after the format's own description ---


def write_cifar10_binary(root: Path) -> tuple[np.ndarray, list[int]]:
    target = root / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    everything, labels = [], []
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        images = pictures(10, (3072,), seed=i)
        batch = [(i + j) % 10 for j in range(10)]
        records = b"".join(
            bytes([label]) + image.tobytes() for label, image in zip(batch, images, strict=True)
        )
        (target / name).write_bytes(records)
        if name != "test_batch.bin":
            everything.append(images)
            labels += batch
    (target / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    return np.concatenate(everything).reshape(-1, 3, 32, 32), labels


def write_cifar100_binary(root: Path) -> tuple[np.ndarray, list[int]]:
    target = root / "cifar-100-binary"
    target.mkdir(parents=True)
    images = pictures(100, (3072,))
    for name in ("train.bin", "test.bin"):
        records = [bytes([fine // 5, fine]) + images[fine].tobytes() for fine in range(100)]
        (target / name).write_bytes(b"".join(records))
    (target / "fine_label_names.txt").write_text("\n".join(CIFAR100))
    return images.reshape(-1, 3, 32, 32), list(range(100))


def python2_pickle(content: dict[str, Any]) -> bytes:
    """What Python 2's cPickle wrote with protocol 2 for a dict of byte arrays and of lists.

    Python 3 cannot write Python 2's strings, so the opcodes are put together by hand, with numpy's old module
    names. The published files were not at hand to compare with.
    """
    out = io.BytesIO()

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def array(value: np.ndarray) -> bytes:
        rows, columns = value.shape
        shape = b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
        dtype = b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
        dtype += b"(K\x03" + string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        build = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
        return build + b"(K\x01" + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    def item(value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, list):
            return b"](" + b"".join(item(element) for element in value) + b"e"
        if isinstance(value, int):
            return b"K" + bytes([value])
        return string(value.encode())

    out.write(b"\x80\x02}(")
    for key, value in content.items():
        out.write(string(key.encode()) + item(value))
    out.write(b"u.")
    return out.getvalue()


def write_cifar100_python(root: Path) -> tuple[np.ndarray, list[int]]:
    target = root / "cifar-100-python"
    target.mkdir(parents=True)
    images = pictures(100, (3072,))
    content = {"filenames": ["a.png"], "fine_labels": list(range(100)), "data": images}
    for name in ("train", "test"):
        (target / name).write_bytes(python2_pickle(content))
    (target / "meta").write_bytes(python2_pickle({"fine_label_names": CIFAR100}))
    return images.reshape(-1, 3, 32, 32), list(range(100))


def write_cifar10_python(root: Path) -> tuple[np.ndarray, list[int]]:
    """As a present Python would pickle it with protocol 2, which writes bytes through _codecs.encode."""
    target = root / "cifar-10-batches-py"
    target.mkdir(parents=True)
    images, labels = pictures(10, (3072,)), list(range(10))
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (target / name).write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=2))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": CIFAR10}, protocol=2))
    return np.tile(images, (5, 1)).reshape(-1, 3, 32, 32), labels * 5


def write_svhn(root: Path) -> tuple[np.ndarray, list[int]]:
    root.mkdir(parents=True, exist_ok=True)
    images, labels = pictures(20, (3, 32, 32)), [i % 10 for i in range(20)]
    on_file = [label or 10 for label in labels]
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(
            root / name, {"X": images.transpose(2, 3, 1, 0), "y": np.array(on_file)[:, None].astype(np.uint8)}
        )
    return images, labels


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(target: Path, compressed: bool = False) -> tuple[np.ndarray, list[int]]:
    target.mkdir(parents=True)
    images, labels = pictures(30, (28, 28)), [i % 10 for i in range(30)]
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", np.array(labels))):
            name = f"{part}-{kind}-ubyte"
            if compressed:
                (target / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (target / name).write_bytes(idx(array))
    return images[:, None], labels


DIGITS = [
    f"digit {w}" for w in ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
]
FASHION = [
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
]
READABLE100 = [name.replace("_", " ") for name in CIFAR100]

WRITERS: dict[str, tuple[str, Callable[[Path], tuple[np.ndarray, list[int]]], list[str]]] = {
    "cifar10 binary": ("cifar10", write_cifar10_binary, CIFAR10),
    "cifar10 python": ("cifar10", write_cifar10_python, CIFAR10),
    "cifar100 binary": ("cifar100", write_cifar100_binary, READABLE100),
    "cifar100 python": ("cifar100", write_cifar100_python, READABLE100),
    "svhn": ("svhn", write_svhn, DIGITS),
    "mnist": ("mnist", lambda root: write_mnist(root / "MNIST" / "raw"), DIGITS),
    "mnist gz": ("mnist", lambda root: write_mnist(root / "MNIST" / "raw", compressed=True), DIGITS),
    "fashion": ("fashion-mnist", lambda root: write_mnist(root / "FashionMNIST" / "raw"), FASHION),
}


@pytest.mark.parametrize("case", WRITERS)
class TestPublishedFormats:
    def test_images_labels_and_names_come_through(self, case: str, tmp_path: Path) -> None:
        name, write, names = WRITERS[case]
        images, labels = write(tmp_path)
        request = DataRequest(root=tmp_path, seed=3)
        assert SETS[name].available(request).ready

        data = SETS[name].load(request)

        every = range(len(images))
        assert np.array_equal(data.train.batch(list(every)).numpy(), images)
        assert original(data, names) == labels
        assert sorted(data.class_names) == sorted(names)
        assert data.train.labels.dtype == torch.int64
        assert data.train.batch([0]).dtype == torch.uint8
        assert len(data.heldout) > 0
        assert SETS[name].classes == len(names)
        assert SETS[name].image_size == images.shape[1:]

    def test_the_seed_draws_the_class_order_and_the_hash_follows(self, case: str, tmp_path: Path) -> None:
        name, write, _ = WRITERS[case]
        write(tmp_path)
        one, again, other = (SETS[name].load(DataRequest(root=tmp_path, seed=s)) for s in (0, 0, 1))
        assert one.class_names == again.class_names
        assert one.content_hash == again.content_hash
        assert len(one.content_hash) == 64
        assert one.class_names != other.class_names
        assert one.content_hash != other.content_hash
        half = len(one.class_names) // 2
        assert set(one.class_names[:half]) != set(other.class_names[:half])


def test_the_two_forms_of_cifar100_are_the_same_data(tmp_path: Path) -> None:
    write_cifar100_binary(tmp_path / "binary")
    write_cifar100_python(tmp_path / "python")
    loads = [SETS["cifar100"].load(DataRequest(root=tmp_path / form)) for form in ("binary", "python")]
    assert loads[0].content_hash == loads[1].content_hash


def test_torchvision_reads_the_files_the_tests_write(tmp_path: Path) -> None:
    """The writers above are themselves held against torchvision, where it can read without a checksum."""
    datasets = import_library("torchvision.datasets")
    images, labels = write_mnist(tmp_path / "MNIST" / "raw")
    theirs = datasets.MNIST(str(tmp_path), train=True)
    assert np.array_equal(theirs.data.numpy(), images[:, 0])
    assert theirs.targets.tolist() == labels
    write_cifar100_python(tmp_path)
    with (tmp_path / "cifar-100-python" / "train").open("rb") as file:
        entry = pickle.load(file, encoding="latin1")  # as torchvision does
    assert np.array_equal(entry["data"], pictures(100, (3072,)))
    assert entry["fine_labels"] == list(range(100))


class TestFashionMnistOfDebian:
    def test_the_packages_folder_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Debian's dataset-fashion-mnist has the four .gz files side by side in one folder."""
        package = tmp_path / "usr" / "share" / "datasets" / "fashion-mnist"
        images, labels = write_mnist(package, compressed=True)
        data = SETS["fashion-mnist"].load(DataRequest(root=package))
        assert np.array_equal(data.train.batch(range(len(images))).numpy(), images)
        assert original(data, FASHION) == labels

    def test_its_place_is_looked_at_after_the_root(self) -> None:
        entry = next(s for s in torchvision_sets._SETS if s.name == "fashion-mnist")
        assert entry.layouts[0].folders == ("FashionMNIST/raw", "/usr/share/datasets/fashion-mnist", "")


class TestNothingIsUnpickled:
    def test_a_pickle_that_would_run_code_is_refused(self, tmp_path: Path) -> None:
        write_cifar100_python(tmp_path)
        evil = b"cpathlib\nPath.touch\n(S'" + str(tmp_path / "was_run").encode() + b"'\ntR."
        (tmp_path / "cifar-100-python" / "train").write_bytes(evil)
        with pytest.raises(UserError, match=r"it asks for pathlib\.Path\.touch"):
            SETS["cifar100"].load(DataRequest(root=tmp_path))
        assert not (tmp_path / "was_run").exists()

    @pytest.mark.parametrize(
        "name", ["os.system", "builtins.eval", "numpy.load", "numpy.core.multiarray.fromfile"]
    )
    def test_only_the_parts_of_an_array_are_admitted(self, name: str) -> None:
        module, _, function = name.rpartition(".")
        with pytest.raises(NotPlain, match=f"it asks for {name}"):
            read_plain_pickle(f"c{module}\n{function}\n.".encode())

    def test_no_array_of_objects_is_built_from_bytes(self) -> None:
        """numpy would take the bytes for addresses."""
        array = python2_pickle({"data": np.zeros((1, 8), np.uint8)}).replace(b"u1", b"O8")
        with pytest.raises(NotPlain, match="no plain numbers"):
            read_plain_pickle(array)

    def test_arrays_come_out_as_they_went_in(self) -> None:
        for dtype in ("u1", "<i8", ">i4", "<f8"):
            for array in (np.arange(12).reshape(3, 4), np.asfortranarray(np.arange(12).reshape(4, 3))):
                content = {"data": array.astype(dtype), "names": ["a", "b"], "count": -7}
                for protocol in (2, 3, 4):
                    found = read_plain_pickle(pickle.dumps(content, protocol=protocol))
                    assert np.array_equal(found["data"], content["data"])
                    assert (found["names"], found["count"]) == (["a", "b"], -7)


class TestDamage:
    def test_a_truncated_idx_file_is_named(self, tmp_path: Path) -> None:
        raw = tmp_path / "MNIST" / "raw"
        write_mnist(raw)
        file = raw / "train-images-idx3-ubyte"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(UserError, match="train-images-idx3-ubyte is damaged"):
            SETS["mnist"].load(DataRequest(root=tmp_path))

    def test_a_truncated_gz_file_is_named(self, tmp_path: Path) -> None:
        raw = tmp_path / "MNIST" / "raw"
        write_mnist(raw, compressed=True)
        file = raw / "t10k-images-idx3-ubyte.gz"
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
            SETS["mnist"].load(DataRequest(root=tmp_path))

    def test_a_truncated_cifar_file_is_named(self, tmp_path: Path) -> None:
        write_cifar100_binary(tmp_path)
        file = tmp_path / "cifar-100-binary" / "test.bin"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(UserError, match=r"test\.bin.*damaged"):
            SETS["cifar100"].load(DataRequest(root=tmp_path))

    def test_labels_beyond_the_names_are_damage(self, tmp_path: Path) -> None:
        write_cifar100_binary(tmp_path)
        (tmp_path / "cifar-100-binary" / "fine_label_names.txt").write_text("a\nb\n")
        with pytest.raises(UserError, match="labels and images do not agree"):
            SETS["cifar100"].load(DataRequest(root=tmp_path))

    def test_a_damaged_mat_file_is_named(self, tmp_path: Path) -> None:
        write_svhn(tmp_path)
        (tmp_path / "train_32x32.mat").write_bytes(b"no matlab file")
        with pytest.raises(UserError, match=r"train_32x32\.mat is damaged"):
            SETS["svhn"].load(DataRequest(root=tmp_path))


class TestMissing:
    @pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "mnist", "fashion-mnist", "imagenet100"])
    def test_one_sentence_says_what_to_put_where(self, name: str, tmp_path: Path) -> None:
        request = DataRequest(root=tmp_path)
        if name == "fashion-mnist" and Path("/usr/share/datasets/fashion-mnist").is_dir():
            pytest.skip("this machine has Debian's dataset-fashion-mnist")
        with pytest.raises(UserError) as caught:
            SETS[name].load(request)
        message = str(caught.value)
        availability = SETS[name].available(request)
        assert not availability.ready
        assert availability.detail == message
        assert str(tmp_path) in message
        assert "\n" not in message
        assert "://" not in message

    def test_the_default_root_is_a_variable_away(self, tmp_path: Path) -> None:
        write_mnist(tmp_path / "default" / "MNIST" / "raw")
        assert len(SETS["mnist"].load(DataRequest()).train) == 30

    def test_cifar_is_fetched_without_being_unpickled_by_torchvision(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        datasets = import_library("torchvision.datasets")

        def fetch(url: str, root: str, filename: str, md5: str) -> None:
            assert (url, filename, md5) == (
                datasets.CIFAR100.url, datasets.CIFAR100.filename, datasets.CIFAR100.tgz_md5
            )  # fmt: skip
            write_cifar100_python(Path(root))

        monkeypatch.setattr(datasets.utils, "download_and_extract_archive", fetch)
        data = SETS["cifar100"].load(DataRequest(root=tmp_path / "new", download=True))
        assert len(data.train) == 100

    def test_a_failed_download_says_what_to_put_where(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        datasets = import_library("torchvision.datasets")

        def fetch(*_: object, **__: object) -> None:
            raise OSError("Name or service not known")

        monkeypatch.setattr(datasets.utils, "download_and_extract_archive", fetch)
        with pytest.raises(UserError, match=r"Name or service not known.*cifar-100-python"):
            SETS["cifar100"].load(DataRequest(root=tmp_path, download=True))


def write_tree(
    root: Path, splits: tuple[str, ...], folders: list[str], size: tuple[int, int] = (20, 20)
) -> None:
    for split in splits:
        for i, name in enumerate(folders):
            target = root / split / name
            target.mkdir(parents=True)
            for j in range(2):
                pixels = pictures(1, (*size, 3), seed=10 * i + j)[0]
                Image.fromarray(pixels).save(target / f"{j}.png")


class TestFolder:
    NAMES = ("red_panda", "sea-lion", "zebra", "yak")

    def test_a_tree_is_read_in_seeded_class_order(self, tmp_path: Path) -> None:
        write_tree(tmp_path, ("train", "test"), list(self.NAMES))
        request = DataRequest(argument=str(tmp_path), seed=5)
        assert SETS["folder:"].available(request).ready
        data = SETS["folder:"].load(request)
        assert sorted(data.class_names) == ["red panda", "sea lion", "yak", "zebra"]
        at = data.class_names.index("zebra")
        chosen = (data.train.labels == at).nonzero().flatten()
        expected = np.stack(
            [np.array(Image.open(tmp_path / "train" / "zebra" / f"{j}.png")) for j in range(2)]
        )
        assert np.array_equal(data.train.batch(chosen).permute(0, 2, 3, 1).numpy(), expected)
        orders = {
            SETS["folder:"].load(DataRequest(argument=str(tmp_path), seed=s)).class_names for s in range(6)
        }
        assert len(orders) > 1

    def test_names_may_be_given(self, tmp_path: Path) -> None:
        write_tree(tmp_path, ("train", "test"), ["a", "b"])
        (tmp_path / "classes.txt").write_text("a giant panda, panda bear\n")
        data = SETS["folder:"].load(DataRequest(argument=str(tmp_path)))
        assert sorted(data.class_names) == ["b", "giant panda"]

    def test_images_of_differing_sizes_and_modes_become_rgb_squares(self, tmp_path: Path) -> None:
        write_tree(tmp_path, ("train", "test"), ["a", "b"])
        Image.fromarray(pictures(1, (30, 50))[0]).save(tmp_path / "train" / "a" / "grey.png")
        data = SETS["folder:"].load(DataRequest(argument=str(tmp_path)))
        assert data.train.batch(range(len(data.train))).shape == (5, 3, 256, 256)

    def test_the_hash_follows_the_content_and_not_the_place_or_the_time(self, tmp_path: Path) -> None:
        for copy in ("one", "two"):
            write_tree(tmp_path / copy, ("train", "test"), ["a", "b"])
        os.utime(tmp_path / "two" / "train" / "a" / "0.png", (1, 1))

        def content_hash(copy: str) -> str:
            return SETS["folder:"].load(DataRequest(argument=str(tmp_path / copy))).content_hash

        first = content_hash("one")
        assert content_hash("two") == first
        changed = tmp_path / "two" / "test" / "b" / "1.png"
        changed.write_bytes(changed.read_bytes() + b"\0")
        assert content_hash("two") != first

    def test_problems_are_named(self, tmp_path: Path) -> None:
        load = SETS["folder:"].load
        with pytest.raises(UserError, match="folder:DIR"):
            load(DataRequest())
        with pytest.raises(UserError, match=r"lacks image files as train/<class>/\*"):
            load(DataRequest(argument=str(tmp_path)))
        write_tree(tmp_path, ("train", "test"), ["a", "b"])
        (tmp_path / "train" / "c").mkdir()
        with pytest.raises(UserError, match="c holds no images"):
            load(DataRequest(argument=str(tmp_path)))
        (tmp_path / "train" / "c").rmdir()
        broken = tmp_path / "train" / "a" / "0.png"
        broken.write_bytes(b"no image")
        with pytest.raises(UserError, match=r"0\.png cannot be read as an image"):
            load(DataRequest(argument=str(tmp_path)))


class TestImageNet:
    def wnids(self, count: int) -> list[str]:
        return [f"n{i:08d}" for i in range(count)]

    def write(self, root: Path, wnids: list[str]) -> None:
        picture = io.BytesIO()
        Image.fromarray(pictures(1, (9, 12, 3))[0]).save(picture, "jpeg")
        for split in ("train", "val"):
            for wnid in wnids:
                (root / split / wnid).mkdir(parents=True)
                (root / split / wnid / "a.JPEG").write_bytes(picture.getvalue())

    def test_a_hundred_classes_are_drawn_and_named_as_open_clip_names_them(self, tmp_path: Path) -> None:
        wnids = self.wnids(1000)
        self.write(tmp_path / "imagenet", wnids)
        assert SETS["imagenet100"].available(DataRequest(root=tmp_path)).ready
        data = SETS["imagenet100"].load(DataRequest(root=tmp_path, seed=1))
        assert len(data.class_names) == 100
        curated = import_library("open_clip").IMAGENET_CLASSNAMES
        for path, label in zip(data.train.paths, data.train.labels.tolist(), strict=True):
            assert data.class_names[label] == curated[wnids.index(Path(path).parent.name)]
        assert data.heldout.batch([0, 99]).shape == (2, 3, 256, 256)
        other = SETS["imagenet100"].load(DataRequest(root=tmp_path, seed=2))
        assert set(other.class_names) != set(data.class_names)

    def test_a_part_of_imagenet_is_named_through_the_mapping(self, tmp_path: Path) -> None:
        """With all 1000 lines of LOC_synset_mapping.txt the place of each wnid is known."""
        everything = self.wnids(1000)
        self.write(tmp_path, everything[500:600])
        lines = [f"{wnid} name of {wnid}, synonym" for wnid in everything]
        (tmp_path / "LOC_synset_mapping.txt").write_text("\n".join(lines))
        data = SETS["imagenet100"].load(DataRequest(root=tmp_path))
        assert set(data.class_names) == set(import_library("open_clip").IMAGENET_CLASSNAMES[500:600])

    def test_own_names_come_first(self, tmp_path: Path) -> None:
        wnids = self.wnids(100)
        self.write(tmp_path, wnids)
        (tmp_path / "classes.txt").write_text("\n".join(f"{wnid} kind {wnid}" for wnid in wnids))
        data = SETS["imagenet100"].load(DataRequest(root=tmp_path))
        assert sorted(data.class_names) == [f"kind {wnid}" for wnid in wnids]

    def test_folders_without_names_are_an_error(self, tmp_path: Path) -> None:
        self.write(tmp_path, self.wnids(100))
        with pytest.raises(UserError, match=r"100 class folders have no name.*LOC_synset_mapping\.txt"):
            SETS["imagenet100"].load(DataRequest(root=tmp_path))


def test_listing_imports_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from genbench.plugin.offers import DataRequest\n"
        "from genbench.data import folder, imagenet, torchvision_sets\n"
        "for m in (folder, imagenet, torchvision_sets):\n"
        "    for d in m.DATASETS: d.available(DataRequest())\n"
        "heavy = {'torch', 'torchvision', 'timm', 'open_clip'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
