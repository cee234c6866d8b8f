"""The driver's side of what travels: folders of the store as parcels, and answers into the store."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import msgspec

from genbench.cluster.parcels import (
    CellAnswer,
    FileParcel,
    FolderParcel,
    Open,
    Put,
    TransferDamaged,
    TripParcel,
    pack_file,
    write_file,
)
from genbench.engine.cells import Assignment, Cell
from genbench.engine.executors import Trip
from genbench.engine.messages import ReadingPlace
from genbench.engine.readings import READING
from genbench.engine.store import COST, MANIFEST, read_manifest
from genbench.keys import file_hash

__all__ = ["Shipping"]


class Shipping:
    """Puts each file into the cluster once, and keeps the latest there."""

    def __init__(self, put: Put, open_: Open, room: int) -> None:
        self._put, self._open, self._room = put, open_, room
        self._folders: OrderedDict[str, FolderParcel] = OrderedDict()
        self.bytes_sent = 0
        """Put into the cluster so far; nodes fetch no more of them than they lack."""

    def trip(self, trip: Trip) -> TripParcel:
        """A trip with all that its cells read."""
        folders = {
            key: self._folder(key, one.parents[name])
            for one in trip.cells
            for name, key in one.cell.sources.items()
        }
        return TripParcel(tuple(one.cell for one in trip.cells), folders, self._code(trip.cells[0].cell))

    def _folder(self, key: str, folder: Path) -> FolderParcel:
        if key not in self._folders:
            files = tuple(
                pack_file(folder / name, sha256, self._put)
                for name, sha256 in read_manifest(folder)["files"].items()
            )
            self._folders[key] = FolderParcel((folder / MANIFEST).read_bytes(), files)
            self.bytes_sent += _size(self._folders[key])
        self._folders.move_to_end(key)
        # Objects live as long as something refers to them. What a node still lacks is put in again.
        while len(self._folders) > 1 and sum(map(_size, self._folders.values())) > self._room:
            self._folders.popitem(last=False)
        return self._folders[key]

    def _code(self, cell: Cell) -> FileParcel | None:
        if cell.step != READING:
            return None
        source = msgspec.convert(cell.how, ReadingPlace).source
        if source.kind != "file":
            return None
        return pack_file(Path(source.module), file_hash(Path(source.module)), self._put)

    def unpack(self, answer: CellAnswer, one: Assignment) -> None:
        """Put the files of a cell where the store expects them, checked.

        Raises
        ------
        TransferDamaged
            If they are not what the node sent, or not what a cell can have.
        """
        for parcel in answer.files:
            if Path(parcel.name).name != parcel.name or parcel.name in (MANIFEST, COST, ".", ".."):
                raise TransferDamaged(f"{parcel.name!r} is no name of a cell's file")
            write_file(parcel, one.out / parcel.name, self._open)


def _size(folder: FolderParcel) -> int:
    return sum(file.size for file in folder.files)
