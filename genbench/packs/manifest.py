"""What `pack.json` holds, as types; a kind of suite adds its own parts."""

from __future__ import annotations

from msgspec import Struct

from genbench.engine.cells import Result
from genbench.keys import Inputs

__all__ = ["FORMAT", "Manifest", "Packed", "PackedFile", "SharedRows"]

FORMAT = 1


class PackedFile(Struct, frozen=True):
    """A file of a pack."""

    file: str
    """Its name in the pack."""
    sha256: str


class SharedRows(Struct, frozen=True):
    """A file that is not stored: it is made of rows of one that is."""

    file: str
    """The stored one."""
    sha256: str
    """Of the stored one."""
    rows: list[int]


class Packed(Struct, frozen=True):
    """A finished cell in a pack."""

    files: dict[str, PackedFile]
    """By the name that the cell gives them."""
    result: Result

    def inputs(self) -> Inputs:
        """As the inputs of the cell that unpacks it: JSON values, which are part of its key."""
        files = {name: {"file": one.file, "sha256": one.sha256} for name, one in self.files.items()}
        return {"files": files, "result": self.result}


class Manifest(Struct, frozen=True, kw_only=True):
    """What every pack has."""

    format: int
    suite: str
    version: int
    evidence: Inputs
    """What determined the evidence: `Suite.content` of the suite as it was."""
    data_hash: str
    """sha256 of all images."""
    shared: dict[str, SharedRows] = {}
    """Name of a file that is made of rows of a stored one, to what it is made of."""
    compressed: dict[str, PackedFile] = {}
    """Name of a file that is stored compressed, to the stored one."""
