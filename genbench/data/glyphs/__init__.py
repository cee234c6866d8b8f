"""The embedded data set `glyphs`: 100 lower-case letters of Unicode, 32 x 32 pixels, named as Unicode does.

The images ship as one compressed file; `python -m genbench.data.glyphs.make` draws it again, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    from genbench.data.images import ImageData

__all__ = ["CARD", "DATASET", "FILE", "FOLDER"]

FOLDER = Path(__file__).parent / "assets"
FILE = "glyphs.xz"
"""Images, labels and domains of both splits: safetensors, compressed."""
CARD = "glyphs.json"
"""Class names, fonts and the hashes of the file."""

_REBUILD = "reinstall genbench, or rebuild it with `python -m genbench.data.glyphs.make`"


def _folder(request: DataRequest) -> Path:
    """Where the file is: the folder asked for if it has one, else the package."""
    if request.root is not None and (request.root / FILE).exists():
        return request.root
    return FOLDER


def _available(request: DataRequest) -> Availability:
    folder = _folder(request)
    for path in (folder / FILE, folder / CARD):
        if not path.exists():
            return Availability(False, f"{path} is missing; {_REBUILD}")
    return Availability(True, str(folder / FILE))


def _load(request: DataRequest) -> ImageData:
    from safetensors.torch import load

    from genbench.data.images import ImageData, TensorImages

    folder = _folder(request)
    card = _read_card(folder / CARD)
    arrays = load(_read_content(folder / FILE, card))
    train, heldout = (
        TensorImages(*(arrays[f"{split}.{part}"] for part in ("images", "labels", "domains")))
        for split in ("train", "heldout")
    )
    return ImageData(
        train=train,
        heldout=heldout,
        class_names=tuple(entry["name"] for entry in card["classes"]),
        content_hash=card["content_sha256"],
        domain_names=tuple(card["domains"]),
    )


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("sha256", "content_sha256", "classes", "domains"):
            card[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); {_REBUILD}") from error
    return card


def _read_content(path: Path, card: dict[str, Any]) -> bytes:
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); {_REBUILD}") from error
    if hashlib.sha256(packed).hexdigest() != card["sha256"]:
        raise UserError(f"{path} is damaged: its sha256 is not the one in {path.with_name(CARD)}; {_REBUILD}")
    return lzma.decompress(packed)


DATASET = Dataset(
    name="glyphs",
    summary="Unicode lower-case letters in 12 DejaVu fonts; one letter with many diacritics is many classes",
    classes=100,
    image_size=(3, 32, 32),
    source="embedded",
    load=_load,
    available=_available,
)
