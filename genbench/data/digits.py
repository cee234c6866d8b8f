"""scikit-learn's handwritten digits: 1797 images of 8 × 8 grey pixels, part of the scikit-learn package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    import numpy as np

    from genbench.data.images import ImageData

__all__ = ["DATASET"]

_CONTENT = "49e47ca0ef3a414f8fdd9d4a3048691607ca103e342842a38a924da0014a98f9"
"""sha256 of images, labels and split; part of every key through the data set's version."""

_HELDOUT_SHARE = 0.4
_SPLIT_SEED = 2026
_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _load(request: DataRequest) -> ImageData:
    import hashlib

    import numpy as np
    import torch

    from genbench.data.images import ImageData, TensorImages

    pixels, labels = _read()
    images = np.round(pixels.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    cut = round(len(labels) * (1 - _HELDOUT_SHARE))

    def split(rows: np.ndarray) -> TensorImages:
        return TensorImages(torch.from_numpy(images[rows]), torch.from_numpy(labels[rows].astype(np.int64)))

    content = hashlib.sha256(images.tobytes() + labels.astype(np.int64).tobytes() + order.tobytes())
    if content.hexdigest() != _CONTENT:
        raise UserError(
            "the digits of this scikit-learn are not those that genbench's results were made with; "
            "install the versions in constraints.txt"
        )
    return ImageData(
        train=split(order[:cut]),
        heldout=split(order[cut:]),
        class_names=tuple(f"digit {name}" for name in _NAMES),
        content_hash=_CONTENT,
    )


def _read() -> tuple[np.ndarray, np.ndarray]:
    """What scikit-learn's `load_digits(return_X_y=True)` gives, from its file.

    Importing scikit-learn takes more than a second, which every process that makes images would spend.
    """
    import numpy as np

    spec = importlib.util.find_spec("sklearn")
    file = Path(spec.origin or "").with_name("datasets") / "data" / "digits.csv.gz" if spec else None
    if file is None or not file.is_file():  # another layout: let scikit-learn find it, or say what is wrong
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        return pixels, labels
    table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)


def _available(request: DataRequest) -> Availability:
    if importlib.util.find_spec("sklearn") is None:
        return Availability(False, "install scikit-learn: pip install scikit-learn")
    return Availability(True, "in scikit-learn")


DATASET = Dataset(
    name="digits",
    summary="Handwritten digits, 1797 small grey images",
    classes=10,
    image_size=(1, 8, 8),
    source="scikit-learn",
    load=_load,
    available=_available,
    version=_CONTENT,
)
