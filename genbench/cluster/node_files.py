"""Files on a node's own disk, kept by the hash of their content: each is fetched once, whoever needs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from genbench.cluster.parcels import FileParcel, Open, write_file
from genbench.errors import UserError
from genbench.keys import file_hash

__all__ = ["NodeFiles", "node_root"]

_KEPT_SECONDS = 7 * 24 * 3600.0
"""After its last use."""


def node_root() -> Path:
    """This user's folder on the local disk of this machine, which nobody else can look into."""
    root = Path(tempfile.gettempdir()) / f"genbench-node-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    about = root.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise UserError(f"{root} belongs to somebody else or is open to others; remove it, or set TMPDIR")
    return root


class NodeFiles:
    """A folder of files that several workers of a node share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._drop_unused()

    def take(self, parcel: FileParcel, open_: Open) -> Path:
        """The file of a parcel, fetched if it is not here; never changed by whoever reads it."""
        place = self._folder / parcel.sha256
        with self._locked(parcel.sha256):
            if not _sound(place, parcel.sha256):
                fetched = place.with_name(f".{parcel.sha256}-{uuid.uuid4().hex[:8]}")
                try:
                    write_file(parcel, fetched, open_)
                    fetched.chmod(0o400)
                    fetched.replace(place)
                finally:
                    fetched.unlink(missing_ok=True)
            os.utime(place)
        return place

    @contextlib.contextmanager
    def _locked(self, sha256: str) -> Iterator[None]:
        """One worker of the node fetches; the others wait for it, and find the file."""
        descriptor = os.open(self._folder / f".lock-{sha256[:2]}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _drop_unused(self) -> None:
        old = time.time() - _KEPT_SECONDS
        for file in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if not file.name.startswith(".lock") and file.stat().st_mtime < old:
                    file.unlink()


def _sound(place: Path, sha256: str) -> bool:
    try:
        return file_hash(place) == sha256
    except OSError:
        return False
