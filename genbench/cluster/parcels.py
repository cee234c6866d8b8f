"""What travels between the driver and the nodes: cells, files in pieces, and how cells ended.

A file is named by the hash of its content. Small ones go along with the message; the pieces of large ones are
objects of the cluster, which a node fetches only if it does not have the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from genbench.engine.cells import Cell, Outcome

__all__ = [
    "CellAnswer",
    "FileParcel",
    "FolderParcel",
    "NodeFacts",
    "Open",
    "Put",
    "TransferDamaged",
    "TripParcel",
    "pack_file",
    "write_file",
]

_INLINE = 100_000
"""Bytes of a file that goes along with a message."""
_PIECE = 32 * 2**20
"""Bytes of a piece: far below what a node's object store holds, so that no file is too large for it."""

Put = Callable[[bytes], Any]
"""Makes an object of the cluster."""
Open = Callable[[Any], bytes]
"""Fetches one."""


class TransferDamaged(Exception):
    """What arrived is not what was sent."""


class FileParcel(msgspec.Struct, frozen=True):
    """One file."""

    name: str
    sha256: str
    size: int
    pieces: tuple[Any, ...]
    """Bytes, or references to objects of the cluster, in order."""


class FolderParcel(msgspec.Struct, frozen=True):
    """The folder of a finished cell that another one reads."""

    manifest: bytes
    files: tuple[FileParcel, ...]


class TripParcel(msgspec.Struct, frozen=True):
    """Cells for a worker on a node."""

    cells: tuple[Cell, ...]
    folders: dict[str, FolderParcel]
    """Key to folder of all that the cells read."""
    code: FileParcel | None = None
    """Of a measure that is a file of the user's."""


class CellAnswer(msgspec.Struct, frozen=True):
    """How a cell ended, and its files."""

    key: str
    outcome: Outcome
    files: tuple[FileParcel, ...] = ()


class NodeFacts(msgspec.Struct, frozen=True):
    """What a worker on a node says of it before it is given any work."""

    name: str
    packages: dict[str, str]
    """Name to version of what bits depend on."""
    unsealed: str
    """Why readings cannot be sealed there; empty where they can."""


def pack_file(path: Path, sha256: str, put: Put) -> FileParcel:
    """The file at `path`, whose content has this hash."""
    size = path.stat().st_size
    if size <= _INLINE:
        return FileParcel(path.name, sha256, size, (path.read_bytes(),))
    return FileParcel(path.name, sha256, size, tuple(map(put, _pieces(path))))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def write_file(parcel: FileParcel, path: Path, open_: Open) -> None:
    """Write what a parcel holds to `path`.

    Raises
    ------
    TransferDamaged
        If its hash or its size is not what the parcel says.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for piece in parcel.pieces:
            data = piece if isinstance(piece, bytes) else open_(piece)
            digest.update(data)
            size += file.write(data)
    if (digest.hexdigest(), size) != (parcel.sha256, parcel.size):
        raise TransferDamaged(f"{parcel.name} arrived with another content than it was sent with")
