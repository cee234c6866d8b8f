"""Where the embedded weights are: a safetensors file and a card (hash, sizes, training log) per backbone."""

from __future__ import annotations

from pathlib import Path

from genbench.plugin.offers import Availability, BackboneRequest

__all__ = ["FOLDER", "REBUILD", "available", "find_files"]

FOLDER = Path(__file__).parent / "assets"

REBUILD = "reinstall genbench, or pretrain it again with `python -m genbench.zoo.mini.pretrain`"


def find_files(name: str, folder: Path | None) -> tuple[Path, Path]:
    """Weights and card of a backbone: in `folder` if it has them, else in the package."""
    stem = name.replace(":", "-")
    if folder is None or not (folder / f"{stem}.safetensors").exists():
        folder = FOLDER
    return folder / f"{stem}.safetensors", folder / f"{stem}.json"


def available(name: str, request: BackboneRequest) -> Availability:
    """Whether both files are there."""
    paths = find_files(name, request.weights)
    for path in paths:
        if not path.exists():
            return Availability(False, f"{path} is missing; {REBUILD}")
    return Availability(True, str(paths[0]))
