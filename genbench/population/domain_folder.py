"""A tree DIR/<domain>/<class>/* of image files, as DomainBed lays out PACS and VLCS."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from genbench.data.images import ImageData, TensorImages
from genbench.errors import UserError
from genbench.keys import derive_seed

__all__ = ["load_domains"]

_SIDE = 32
"""Images are brought to squares of this side: populations are small networks."""
_HELDOUT_SHARE = 0.2
"""As in DomainBed, of every domain."""
_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def load_domains(root: Path, seed: int) -> ImageData:
    """All domains of `root`; a fifth of each, drawn by `seed`, is held out."""
    domains = sorted(path.name for path in root.glob("*") if path.is_dir()) if root.is_dir() else []
    classes = sorted({path.name for domain in domains for path in (root / domain).glob("*") if path.is_dir()})
    if len(domains) < 2 or len(classes) < 2:
        raise UserError(
            f"{root} lacks image files of two domains or more as <domain>/<class>/*; put them there"
        )
    files: list[Path] = []
    labels: list[int] = []
    places: list[int] = []
    for place, domain in enumerate(domains):
        for label, name in enumerate(classes):
            found = sorted(p for p in (root / domain / name).glob("*") if p.suffix.lower() in _SUFFIXES)
            files += found
            labels += [label] * len(found)
            places += [place] * len(found)
    if not files:
        raise UserError(f"{root} holds no image files; put them at <domain>/<class>/*")
    images = torch.stack([_decoded(file) for file in files])
    label_of, domain_of = (torch.tensor(numbers, device="cpu") for numbers in (labels, places))
    generator = torch.Generator("cpu").manual_seed(derive_seed("domains", seed))
    drawn = torch.zeros(len(files), dtype=torch.bool, device="cpu")
    for place, _ in enumerate(domains):
        rows = (domain_of == place).nonzero()[:, 0]
        order = torch.randperm(len(rows), generator=generator, device="cpu")
        drawn[rows[order[: round(_HELDOUT_SHARE * len(rows))]]] = True
    return ImageData(
        train=TensorImages(images[~drawn], label_of[~drawn], domain_of[~drawn]),
        heldout=TensorImages(images[drawn], label_of[drawn], domain_of[drawn]),
        class_names=tuple(classes),
        content_hash="",
        domain_names=tuple(domains),
    )


def _decoded(path: Path) -> Tensor:
    import numpy as np
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = ImageOps.fit(file.convert("RGB"), (_SIDE, _SIDE), method=Image.Resampling.BICUBIC)
    except OSError as error:
        raise UserError(f"{path} cannot be read as an image; replace or remove it") from error
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
