"""What a worker hands to readings: copies of a network's files under names that say nothing.

A reading that is sealed sees this folder and none of the store; the files are hard links where the disk has
them. Of a cell's manifest only the result comes along, without its key, its label and its inputs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from genbench.engine.store import COST, MANIFEST, read_manifest, write_sealed

__all__ = ["Given"]


class Given:
    """A folder with the files of one network at a time, or of a few."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._offered: dict[str, Path] = {}
        """Folder of a cell to what stands for it here."""
        self._count = 0

    def offer(self, cells: Mapping[str, str], *, beside: bool = False) -> dict[str, str]:
        """Name to folder here of the cells' folders; those of the last network that are not among them go.

        Networks that were trained on the same images find them under the same path, as loaders may keep them.

        Parameters
        ----------
        beside : let the others stay.
        """
        for source in () if beside else self._offered.keys() - set(cells.values()):
            shutil.rmtree(self._offered.pop(source), ignore_errors=True)
        for source in cells.values():
            if source not in self._offered:
                self._count += 1
                self._offered[source] = _linked(Path(source), self.folder / str(self._count))
        return {name: str(self._offered[source]) for name, source in cells.items()}


def _linked(source: Path, target: Path) -> Path:
    target.mkdir()
    for file in source.iterdir():
        if file.name == MANIFEST:
            write_sealed(target / MANIFEST, {"result": read_manifest(source)["result"]}, surely=False)
        elif file.name != COST:
            try:
                os.link(file, target / file.name)
            except OSError:  # another disk, or one without links
                shutil.copyfile(file, target / file.name)
    return target
