"""Build the file: `python -m genbench.data.fashion14.make [--out FOLDER]`.

It needs FashionMNIST's four files, for example from Debian's package dataset-fashion-mnist. Nothing but these
and `SEED` decides its content.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from genbench.data.fashion14 import CLASSES, CONTENT, FILE, FOLDER
from genbench.data.images import ImageSplit
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry

__all__ = ["balanced_rows", "build", "halved"]

SEED = 2026
PER_CLASS = 100


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(…, h, w) -> (…, h/2, w/2): means of 2 × 2 pixels, halves rounded up."""
    *rest, height, width = images.shape
    squares = images.reshape(*rest, height // 2, 2, width // 2, 2).astype(np.uint16)
    means: NDArray[np.uint8] = ((squares.sum(axis=(-3, -1)) + 2) // 4).astype(np.uint8)
    return means


def balanced_rows(labels: NDArray[Any], per_class: int, seed: int) -> NDArray[np.int64]:
    """Rows of `per_class` images of each class, drawn at random, in their own order."""
    generator = np.random.default_rng(seed)
    members = (np.flatnonzero(labels == label) for label in np.unique(labels))
    return np.sort(np.concatenate([generator.permutation(own)[:per_class] for own in members]))


def build(root: Path | None = None) -> bytes:
    """The content of the file, not compressed, out of the FashionMNIST files below `root`."""
    data = load_registry().get("datasets", "fashion-mnist").item.load(DataRequest(root=root))
    # genbench draws an order of classes; here they have that of the data set itself.
    place = np.array([CLASSES.index(name) for name in data.class_names], dtype=np.uint8)

    def arrays(split: ImageSplit, rows: NDArray[np.int64] | None) -> tuple[Any, Any]:
        labels = place[split.labels.numpy()]
        chosen = np.arange(len(labels)) if rows is None else rows
        return halved(split.batch(chosen.tolist()).numpy()), labels[chosen]

    drawn = balanced_rows(place[data.train.labels.numpy()], PER_CLASS, SEED)
    (images, labels), (heldout, truths) = arrays(data.train, drawn), arrays(data.heldout, None)
    tensors = {
        "train.images": images, "train.labels": labels, "heldout.images": heldout, "heldout.labels": truths,
    }  # fmt: skip
    content: bytes = save({name: np.ascontiguousarray(array) for name, array in tensors.items()})
    return content


def main() -> None:
    """Write the file, and say whether its content is the one that genbench expects."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--root", type=Path, help="where FashionMNIST's files are, if not where suites look")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write (default: %(default)s)")
    given = parser.parse_args()
    content = build(given.root)
    packed = lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=9)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / FILE).write_bytes(packed)
    found = hashlib.sha256(content).hexdigest()
    expected = "as expected" if found == CONTENT else f"but {CONTENT} was expected"
    print(f"{given.out / FILE}: {len(packed) / 1e6:.2f} MB; sha256 of the content {found}, {expected}")


if __name__ == "__main__":
    main()
