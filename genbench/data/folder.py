"""`folder:DIR`: any tree of image files `train/<class>/*` and `test/<class>/*`.

The helpers here are shared by the other data sets that read files: where data lie by default, the seeded
order of classes, and the decoding of image files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.data.images import FileImages, ImageData

__all__ = ["DATASETS", "class_order", "data_root", "load_tree", "named_classes"]

_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_SIDE = 256
"""Side of the square to which images of differing sizes are brought."""


def data_root(request: DataRequest) -> Path:
    """The folder to look in: the request's, else $GENBENCH_DATA, else ~/.cache/genbench/data."""
    default = os.environ.get("GENBENCH_DATA") or Path.home() / ".cache" / "genbench" / "data"
    return Path(request.root or default).expanduser()


def class_order(count: int, seed: int | None, draw: int | None = None) -> list[int]:
    """`draw` (or all) of `count` classes in an order drawn by `seed`; the first half are the seen ones.

    Without a seed, all classes as they are: networks trained elsewhere know them in that order.
    """
    if seed is None:
        return list(range(count))
    import numpy as np

    # RandomState, because numpy promises that its stream never changes.
    return [int(i) for i in np.random.RandomState(seed).permutation(count)[:draw]]


def named_classes(path: Path) -> dict[str, str]:
    """Names from a file with lines "folder name, synonym, ..."; the first name of each line counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return {pair[0]: pair[-1].partition(",")[0].strip() for pair in pairs}


def load_tree(
    root: Path, heldout: str, folders: Sequence[str], names: Sequence[str], side: int | None
) -> ImageData:
    """Images of the class `folders` under root/train and root/`heldout`, in that class order.

    Every image becomes RGB. With a `side`, or where sizes differ, the shorter side is resized to `side`
    (or 256) and the centre square kept; else images keep their size. The content hash covers each file's
    path, size and content, and the names.
    """
    from genbench.data.images import ImageData

    files = {split: [_images(root / split / folder) for folder in folders] for split in ("train", heldout)}
    for split, classes in files.items():
        for folder, paths in zip(folders, classes, strict=True):
            if not paths:
                raise UserError(
                    f"{root / split / folder} holds no images; put image files of the class there."
                )
    everything = [path for classes in files.values() for paths in classes for path in paths]
    if side is None and not _same_size(everything):
        side = _SIDE
    return ImageData(
        train=_split(files["train"], side),
        heldout=_split(files[heldout], side),
        class_names=tuple(names),
        content_hash=_content_hash(root, everything, names),
    )


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in _SUFFIXES)


def _same_size(paths: Sequence[Path]) -> bool:
    from PIL import Image

    sizes = set()
    for path in paths:
        try:
            with Image.open(path) as image:  # reads the header only
                sizes.add(image.size)
        except OSError as error:
            raise UserError(f"{path} cannot be read as an image; replace or remove it.") from error
        if len(sizes) > 1:
            return False
    return True


def _split(classes: Sequence[Sequence[Path]], side: int | None) -> FileImages:
    import torch

    from genbench.data.images import FileImages

    labels = [label for label, paths in enumerate(classes) for _ in paths]
    return FileImages(
        paths=[str(path) for paths in classes for path in paths],
        labels=torch.tensor(labels, dtype=torch.int64, device="cpu"),
        decode=partial(_decode, side=side),
    )


def _decode(path: str, side: int | None) -> Tensor:
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except OSError as error:
        raise UserError(f"{path} cannot be read as an image; replace or remove it.") from error
    if side is not None:
        image = ImageOps.fit(image, (side, side), method=Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _content_hash(root: Path, paths: Sequence[Path], names: Sequence[str]) -> str:
    def line(path: Path) -> str:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{path.relative_to(root).as_posix()}\t{path.stat().st_size}\t{digest}\n"

    total = hashlib.sha256("\n".join(names).encode())
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing runs outside Python's lock
        for entry in pool.map(line, paths):
            total.update(entry.encode())
    return total.hexdigest()


def _class_folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "train").glob("*") if path.is_dir())


def _location(request: DataRequest) -> Path:
    if not request.argument:
        raise UserError(
            "folder: needs a folder, as in folder:DIR with DIR/train/<class>/* and DIR/test/<class>/*."
        )
    path = Path(request.argument).expanduser()
    return path if path.is_absolute() or path.is_dir() else data_root(request) / path


def _missing(root: Path) -> str | None:
    if _class_folders(root) and (root / "test").is_dir():
        return None
    return f"{root} lacks image files as train/<class>/* and test/<class>/*; put them there or name another."


def _load(request: DataRequest) -> ImageData:
    root = _location(request)
    if (problem := _missing(root)) is not None:
        raise UserError(problem)
    found = _class_folders(root)
    folders = [found[i] for i in class_order(len(found), request.seed)]
    given = named_classes(root / "classes.txt")
    names = [given.get(folder, folder.replace("_", " ").replace("-", " ")) for folder in folders]
    return load_tree(root, "test", folders, names, side=None)


def _available(request: DataRequest) -> Availability:
    if not request.argument:
        return Availability(True, "folder:DIR reads any DIR/train/<class>/* and DIR/test/<class>/*.")
    root = _location(request)
    problem = _missing(root)
    return Availability(problem is None, problem or str(root))


DATASETS = [
    Dataset(
        name="folder:",
        summary="any image files as DIR/train/<class>/* and DIR/test/<class>/*",
        classes=None,
        image_size=None,
        source="your own files",
        load=_load,
        available=_available,
    )
]
