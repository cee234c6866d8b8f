"""CIFAR-10, CIFAR-100, SVHN, MNIST and FashionMNIST from the files that torchvision keeps.

CIFAR comes in two forms. The binary one is plain bytes. The one that torchvision downloads is pickled;
genbench reads it with a parser that can build nothing but lists, strings, numbers and arrays of numbers
(`genbench.data.plain_pickle`), so that, as everywhere in genbench, no file can run code.

Classes come in an order drawn by the request's seed: the first half are the seen ones.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench._lazy import np
from genbench.data.folder import class_order, data_root
from genbench.data.plain_pickle import NotPlain, read_plain_pickle
from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genbench.data.images import ImageData

    _Bytes = NDArray[np.uint8]
    _Split = tuple[_Bytes, NDArray[np.int64]]
    """Images (n, channels, height, width) and labels (n,)."""

__all__ = ["DATASETS"]

_DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = tuple(f"digit {word}" for word in _DIGIT_WORDS)
_FASHION = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the four files."""


@dataclass(frozen=True)
class _Layout:
    """One way in which a data set lies on disk."""

    folders: tuple[str, ...]
    """Below the root, or absolute; "" is the root itself."""
    files: tuple[str, ...]
    """What must be there, each as it is or with .gz."""
    read: Callable[[Path], tuple[_Split, _Split, tuple[str, ...]]]
    """Folder -> training split, held-out split, class names in the files' own order."""


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _content(folder: Path, name: str) -> bytes:
    path = _find(folder, name)
    if path is None:
        raise UserError(f"{folder / name} is missing; put it there.")
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}); fetch it again.") from error


def _read_idx(folder: Path, name: str) -> _Bytes:
    """An IDX file of unsigned bytes: 0, 0, type 8, number of dimensions, dimensions as big-endian int32."""
    content = _content(folder, name)
    dimensions = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else ()
    if not dimensions or len(content) - start != np.prod(shape):
        raise UserError(f"{folder / name} is damaged: it is no IDX file of bytes; fetch it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_mnist(names: tuple[str, ...], folder: Path) -> tuple[_Split, _Split, tuple[str, ...]]:
    splits = [
        (
            _read_idx(folder, f"{part}-images-idx3-ubyte")[:, None],
            _read_idx(folder, f"{part}-labels-idx1-ubyte").astype(np.int64),
        )
        for part in ("train", "t10k")
    ]
    return splits[0], splits[1], names


def _read_svhn(folder: Path) -> tuple[_Split, _Split, tuple[str, ...]]:
    from scipy.io import loadmat

    def split(name: str) -> _Split:
        try:
            content = loadmat(folder / name)
            images, labels = content["X"], content["y"]
        except Exception as error:  # scipy has its own exceptions, and a damaged file can raise any
            raise UserError(f"{folder / name} is damaged ({error}); fetch it again.") from error
        # The files call the digit zero 10.
        return images.transpose(3, 2, 0, 1), labels.reshape(-1).astype(np.int64) % 10

    return split("train_32x32.mat"), split("test_32x32.mat"), _DIGITS


def _read_cifar_binary(
    train: tuple[str, ...], test: str, names_file: str, label_bytes: int, folder: Path
) -> tuple[_Split, _Split, tuple[str, ...]]:
    """Records of `label_bytes` labels, the last of them the fine one, and 3 x 32 x 32 values."""
    size = label_bytes + 3072

    def split(files: tuple[str, ...]) -> _Split:
        content = b"".join(_content(folder, name) for name in files)
        if not content or len(content) % size:
            raise UserError(f"the files {', '.join(files)} in {folder} are damaged; fetch them again.")
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        labels = records[:, label_bytes - 1].astype(np.int64)
        return records[:, label_bytes:].reshape(-1, 3, 32, 32), labels

    names = _content(folder, names_file).decode().split()
    return split(train), split((test,)), _readable(names)


def _plain_pickle(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = read_plain_pickle(_content(folder, name))
        if not isinstance(content, dict):
            raise NotPlain("it holds no dictionary")
        return content
    except NotPlain as error:
        raise UserError(f"{folder / name} is no plain CIFAR file ({error}); fetch it again.") from error


def _read_cifar_python(
    train: tuple[str, ...], test: str, meta: str, names_key: str, label_key: str, folder: Path
) -> tuple[_Split, _Split, tuple[str, ...]]:
    def split(files: tuple[str, ...]) -> _Split:
        parts = [_plain_pickle(folder, name) for name in files]
        try:
            images = np.concatenate([np.asarray(part["data"], dtype=np.uint8) for part in parts])
            labels = np.concatenate([np.asarray(part[label_key], dtype=np.int64) for part in parts])
            return images.reshape(len(labels), 3, 32, 32), labels
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(
                f"the files {', '.join(files)} in {folder} are damaged; fetch them again."
            ) from error

    return split(train), split((test,)), _readable(_plain_pickle(folder, meta)[names_key])


def _readable(names: list[str]) -> tuple[str, ...]:
    return tuple(str(name).replace("_", " ") for name in names)


@dataclass(frozen=True)
class _Set:
    name: str
    summary: str
    image_size: tuple[int, int, int]
    classes: int
    wanted: str
    """What to put under the root, as the end of "put ... there"."""
    torchvision_class: str
    layouts: tuple[_Layout, ...]

    def locate(self, root: Path) -> tuple[_Layout, Path] | None:
        """The first layout whose files are all in one of its folders."""
        for layout in self.layouts:
            for folder in (root / name for name in layout.folders):
                if all(_find(folder, file) for file in layout.files):
                    return layout, folder
        return None

    def missing(self, root: Path) -> str:
        return f"{self.name} is not on this machine: put {self.wanted} into {root}."

    def available(self, request: DataRequest) -> Availability:
        found = self.locate(data_root(request))
        return Availability(
            found is not None, str(found[1]) if found is not None else self.missing(data_root(request))
        )

    def load(self, request: DataRequest) -> ImageData:
        root = data_root(request)
        found = self.locate(root)
        if found is None and request.download:
            self._download(root)
            found = self.locate(root)
        if found is None:
            raise UserError(self.missing(root))
        layout, folder = found
        train, heldout, names = layout.read(folder)
        return _image_data(train, heldout, names, request.seed, folder)

    def _download(self, root: Path) -> None:
        """Fetch and unpack by torchvision's own address list, with its progress bar; reads nothing."""
        datasets = _torchvision_datasets()
        source = getattr(datasets, self.torchvision_class)
        try:
            root.mkdir(parents=True, exist_ok=True)
            if self.torchvision_class.startswith("CIFAR"):
                # The class itself would unpickle what it fetched.
                datasets.utils.download_and_extract_archive(
                    source.url, str(root), filename=source.filename, md5=source.tgz_md5
                )
            elif self.torchvision_class == "SVHN":
                for split in ("train", "test"):
                    source(str(root), split=split, download=True)
            else:
                source(str(root), download=True)
        except Exception as error:  # torchvision passes on whatever the network layer raises
            reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
            raise UserError(f"the download failed ({reason}), and {self.missing(root)}") from error


def _torchvision_datasets() -> Any:
    importlib.import_module("genbench._torchvision")
    return importlib.import_module("torchvision.datasets")


def _image_data(
    train: _Split, heldout: _Split, names: tuple[str, ...], seed: int | None, folder: Path
) -> ImageData:
    import torch

    from genbench.data.images import ImageData, TensorImages

    order = class_order(len(names), seed)
    place = np.argsort(order)  # the new label of each old one
    digest = hashlib.sha256()
    splits = []
    for images, labels in (train, heldout):
        if len(images) != len(labels) or labels.min() < 0 or labels.max() >= len(names):
            raise UserError(
                f"the files in {folder} are damaged: labels and images do not agree; fetch them again."
            )
        images, labels = np.ascontiguousarray(images), place[labels]
        digest.update(images.data)  # as they lie in memory: no copy
        digest.update(labels.astype("<i8").data)
        splits.append(
            TensorImages(
                torch.tensor(images, device="cpu"), torch.tensor(labels, dtype=torch.int64, device="cpu")
            )
        )
    class_names = tuple(names[i] for i in order)
    digest.update("\n".join(class_names).encode())
    return ImageData(splits[0], splits[1], class_names, digest.hexdigest())


def _mnist_layout(names: tuple[str, ...], *folders: str) -> _Layout:
    files = tuple(
        f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    )
    return _Layout((*folders, ""), files, partial(_read_mnist, names))


_CIFAR10_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_CIFAR10_BINARIES = tuple(f"{name}.bin" for name in _CIFAR10_BATCHES)

_SETS = (
    _Set(
        name="cifar10",
        summary="photos of 10 kinds of animals and vehicles",
        image_size=(3, 32, 32),
        classes=10,
        wanted="cifar-10-batches-py, as torchvision unpacks it, or cifar-10-batches-bin",
        torchvision_class="CIFAR10",
        layouts=(
            _Layout(
                ("cifar-10-batches-bin", ""),
                (*_CIFAR10_BINARIES, "test_batch.bin", "batches.meta.txt"),
                partial(_read_cifar_binary, _CIFAR10_BINARIES, "test_batch.bin", "batches.meta.txt", 1),
            ),
            _Layout(
                ("cifar-10-batches-py", ""),
                (*_CIFAR10_BATCHES, "test_batch", "batches.meta"),
                partial(
                    _read_cifar_python,
                    _CIFAR10_BATCHES,
                    "test_batch",
                    "batches.meta",
                    "label_names",
                    "labels",
                ),
            ),
        ),
    ),
    _Set(
        name="cifar100",
        summary="photos of 100 kinds of things, paper 004's first data set",
        image_size=(3, 32, 32),
        classes=100,
        wanted="cifar-100-python, as torchvision unpacks it, or cifar-100-binary",
        torchvision_class="CIFAR100",
        layouts=(
            _Layout(
                ("cifar-100-binary", ""),
                ("train.bin", "test.bin", "fine_label_names.txt"),
                partial(_read_cifar_binary, ("train.bin",), "test.bin", "fine_label_names.txt", 2),
            ),
            _Layout(
                ("cifar-100-python", ""),
                ("train", "test", "meta"),
                partial(_read_cifar_python, ("train",), "test", "meta", "fine_label_names", "fine_labels"),
            ),
        ),
    ),
    _Set(
        name="svhn",
        summary="house numbers, cropped digits",
        image_size=(3, 32, 32),
        classes=10,
        wanted="train_32x32.mat and test_32x32.mat, as torchvision downloads them,",
        torchvision_class="SVHN",
        layouts=(_Layout(("", "svhn", "SVHN"), ("train_32x32.mat", "test_32x32.mat"), _read_svhn),),
    ),
    _Set(
        name="mnist",
        summary="handwritten digits",
        image_size=(1, 28, 28),
        classes=10,
        wanted="MNIST/raw with its four idx files, as torchvision lays them out,",
        torchvision_class="MNIST",
        layouts=(_mnist_layout(_DIGITS, "MNIST/raw"),),
    ),
    _Set(
        name="fashion-mnist",
        summary="pictures of clothes",
        image_size=(1, 28, 28),
        classes=10,
        wanted="FashionMNIST/raw with its four idx files (or install Debian's dataset-fashion-mnist)",
        torchvision_class="FashionMNIST",
        layouts=(_mnist_layout(_FASHION, "FashionMNIST/raw", str(_DEBIAN_FASHION)),),
    ),
)

DATASETS = [
    Dataset(
        name=entry.name,
        summary=entry.summary,
        classes=entry.classes,
        image_size=entry.image_size,
        source="torchvision's files",
        load=entry.load,
        available=entry.available,
    )
    for entry in _SETS
]
