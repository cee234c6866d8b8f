"""`imagenet100`: 100 ImageNet classes drawn by seed from the usual folders `train/<wnid>/*`, `val/<wnid>/*`.

Images are brought to 256 x 256 (shorter side resized, centre kept). Names for the folders come from the
first of: a `classes.txt` in the root ("n01440764 tench"); open_clip's curated list, which goes by the order
of all 1000 wnids; a LOC_synset_mapping.txt as it comes with the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import genbench._torchvision  # noqa: F401  before open_clip, which imports torchvision
from genbench.data.folder import class_order, data_root, load_tree, named_classes
from genbench.errors import UserError
from genbench.plugin.offers import Availability, DataRequest, Dataset

if TYPE_CHECKING:
    from genbench.data.images import ImageData

__all__ = ["DATASETS"]

_CLASSES = 100
_SIDE = 256


def _root(request: DataRequest) -> Path:
    """The root itself where it has train/, else its subfolder imagenet, where the message sends files."""
    root = data_root(request)
    return root if (root / "train").is_dir() else root / "imagenet"


def _wnids(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "train").glob("*") if (root / "val" / path.name).is_dir())


def _problem(root: Path) -> str | None:
    found = len(_wnids(root))
    if found >= _CLASSES:
        return None
    return (
        f"imagenet100 needs ImageNet as {root}/train/<wnid>/* and {root}/val/<wnid>/* with {_CLASSES} "
        f"classes or more, found {found}; put the extracted files there."
    )


def _names(root: Path, wnids: list[str]) -> dict[str, str]:
    names = named_classes(root / "classes.txt")
    if not set(wnids) <= names.keys():
        mapping = named_classes(root / "LOC_synset_mapping.txt")
        everything = sorted(mapping) if len(mapping) == 1000 else wnids
        names = _curated(everything) if len(everything) == 1000 else mapping
    unnamed = [wnid for wnid in wnids if wnid not in names]
    if unnamed:
        raise UserError(
            f"{len(unnamed)} class folders have no name ({unnamed[0]}, ...); put LOC_synset_mapping.txt, "
            f'which comes with ImageNet, or a classes.txt with lines "{unnamed[0]} name" into {root}.'
        )
    return names


def _curated(wnids: list[str]) -> dict[str, str]:
    """open_clip's names tell apart what ImageNet's own repeat: two cranes, two maillots."""
    from open_clip import IMAGENET_CLASSNAMES

    return dict(zip(wnids, IMAGENET_CLASSNAMES, strict=True))


def _load(request: DataRequest) -> ImageData:
    root = _root(request)
    if (problem := _problem(root)) is not None:
        raise UserError(problem)
    wnids = _wnids(root)
    drawn = [wnids[i] for i in class_order(len(wnids), request.seed, _CLASSES)]
    names = _names(root, wnids)
    return load_tree(root, "val", drawn, [names[wnid] for wnid in drawn], side=_SIDE)


def _available(request: DataRequest) -> Availability:
    root = _root(request)
    problem = _problem(root)
    return Availability(problem is None, problem or str(root))


DATASETS = [
    Dataset(
        name="imagenet100",
        summary="100 ImageNet classes drawn by seed",
        classes=_CLASSES,
        image_size=(3, _SIDE, _SIDE),
        source="your copy of ImageNet",
        load=_load,
        available=_available,
    )
]
