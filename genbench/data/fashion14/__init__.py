"""The embedded data set `fashion14`: FashionMNIST (Zalando, MIT licence) halved to 14 × 14 grey pixels.

1,000 training images, a hundred of each class, and all 10,000 test images. They ship as one compressed file;
`python -m genbench.data.fashion14.make` makes it again out of FashionMNIST's own files, bit for bit.
"""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    from genbench.data.images import ImageData

__all__ = ["CLASSES", "CONTENT", "DATASET", "FILE", "FOLDER"]

FOLDER = Path(__file__).parent / "assets"
FILE = "fashion14.xz"
"""Images and labels of both splits: safetensors, compressed."""
CONTENT = "dab3d2c3a131223fc3eb8f134ba695c103f1f3d21e7d15a2f06cf1ed6e7fce80"
"""sha256 of the file's content; part of every key through the data set's version."""

CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_REBUILD = "reinstall genbench, or rebuild it with `python -m genbench.data.fashion14.make`"


def _file(request: DataRequest) -> Path:
    """The one in the folder asked for if there is one, else the package's."""
    if request.root is not None and (request.root / FILE).exists():
        return request.root / FILE
    return FOLDER / FILE


def _available(request: DataRequest) -> Availability:
    file = _file(request)
    if not file.exists():
        return Availability(False, f"{file} is missing; {_REBUILD}")
    return Availability(True, str(file))


def _load(request: DataRequest) -> ImageData:
    from safetensors.torch import load

    from genbench.data.images import ImageData, TensorImages

    tensors = load(_content(_file(request)))
    train, heldout = (
        TensorImages(tensors[f"{split}.images"], tensors[f"{split}.labels"].long())
        for split in ("train", "heldout")
    )
    return ImageData(train, heldout, CLASSES, CONTENT)


def _content(file: Path) -> bytes:
    try:
        content = lzma.decompress(file.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise UserError(f"{file} cannot be read ({error}); {_REBUILD}") from error
    if hashlib.sha256(content).hexdigest() != CONTENT:
        raise UserError(f"{file} does not hold the images that genbench's results were made with; {_REBUILD}")
    return content


DATASET = Dataset(
    name="fashion14",
    summary="FashionMNIST halved to 14 × 14: pictures of clothes, 1,000 for training and 10,000 held out",
    classes=len(CLASSES),
    image_size=(1, 14, 14),
    source="embedded",
    load=_load,
    available=_available,
    version=CONTENT,
)
