"""Reads evidence packs: trained networks and what they do on held-out images, as files with hashes.

Everyone who uses a suite's pack is scored against the same evidence.

    PACK/
      pack.json     format, suite, what determined the evidence, sha256 of every file
      ...           weights, traces and truths, as the suite's kind puts them in (`Kind.fill_pack`)

Nothing in a pack is code. Every file is checked against its hash whenever it is read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from genbench.engine.cells import Cell, Result, Step, make_cell
from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.packs.compressed import content
from genbench.packs.manifest import FORMAT, Manifest, Packed, PackedFile, SharedRows
from genbench.packs.shared_rows import write_rows

__all__ = ["MANIFEST", "PACKS", "Pack", "copy_files", "read_pack", "unpack", "unpacked_cell"]

PACKS = "packs"
"""Folder beside a suite's file with the packs that ship with it, by suite."""
MANIFEST = "pack.json"

UNPACKED = Step("unpacked", "genbench.packs.pack:unpack", "unpack evidence", seconds=0.1, at_home=True)
_VERSION = 1
"""Code version of `unpack`; raise it when it would give other bits."""

M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class Pack:
    """A pack whose manifest has been read."""

    folder: Path
    manifest: Manifest
    address: str = ""
    """Where it was fetched from, with its hash; empty for one that lies here."""

    def read_as(self, wanted: type[M]) -> M:
        """The manifest as a kind of suite has it; the pack was read for a suite of that kind."""
        assert isinstance(self.manifest, wanted)
        return self.manifest

    @property
    def version(self) -> str:
        """Suite, version and the hash of the manifest, which contains every file's."""
        return f"{self.manifest.suite} v{self.manifest.version} ({self.hash[:12]})"

    @property
    def hash(self) -> str:
        """sha256 of the manifest."""
        return file_hash(self.folder / MANIFEST)

    def check(self, files: Mapping[str, PackedFile]) -> None:
        """Refuse a pack in which one of `files` is not what the manifest says."""
        with tempfile.TemporaryDirectory() as folder:
            copy_files(self.folder, files, Path(folder), self.manifest.shared, self.manifest.compressed)

    def file(self, entry: PackedFile) -> Path:
        """A file of the pack, unchanged since it was written."""
        source = _inside(self.folder, entry.file)
        _require_hash(source, source, entry.sha256)
        return source


def _inside(folder: Path, name: str) -> Path:
    source = folder / name
    if source.parent.resolve() != folder.resolve():
        raise UserError(f"the evidence pack {folder} names a file outside of it: {name}")
    return source


def _require_hash(file: Path, source: Path, sha256: str) -> None:
    """Refuse a `file` that is not what the manifest says of `source`."""
    try:
        found = file_hash(file)
    except OSError as problem:
        raise UserError(f"{source} cannot be read ({problem.strerror}); reinstall genbench") from None
    if found != sha256:
        raise UserError(
            f"{source} is damaged: its sha256 is not the one in {source.parent / MANIFEST}; reinstall "
            "genbench, or run with --from-scratch"
        )


def read_pack(folder: str | Path, manifest: type[Manifest] = Manifest) -> Pack:
    """The pack in `folder`; a `UserError` if its manifest is not one.

    Parameters
    ----------
    manifest : its type, as the suite's kind says.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Format).format
        if version == FORMAT:
            return Pack(folder, msgspec.json.decode(content, type=manifest))
    except FileNotFoundError:
        raise UserError(f"there is no evidence pack in {folder}: it has no {MANIFEST}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} cannot be read as an evidence pack ({problem})") from None
    raise UserError(f"{path} has format {version}, and this genbench reads format {FORMAT}; update genbench")


class _Format(msgspec.Struct):
    format: int


def unpacked_cell(pack: Pack, name: str, entry: Packed, *, on_demand: bool = False) -> Cell:
    """The cell that takes `entry` of a manifest out of a pack.

    Keyed by content, not by how it was made or is stored: everyone is scored against the same bytes.
    """
    names = {file.file for file in entry.files.values()}
    shared = {own: rows for own, rows in pack.manifest.shared.items() if own in names}
    compressed = {own: file for own, file in pack.manifest.compressed.items() if own in names}
    return make_cell(
        UNPACKED,
        f"{name} from the evidence pack",
        {"step": _VERSION, **entry.inputs()},
        how=msgspec.to_builtins(UnpackHow(str(pack.folder), shared, compressed)),
        on_demand=on_demand,
    )


class UnpackHow(msgspec.Struct, frozen=True):
    """Where a pack lies, and which of its files are made of rows of others or stored compressed."""

    pack: str
    shared: dict[str, SharedRows]
    compressed: dict[str, PackedFile] = {}


class UnpackInputs(msgspec.Struct, frozen=True):
    """A finished cell in a pack."""

    step: int
    files: dict[str, PackedFile]
    result: Result
    how: UnpackHow


def unpack(inputs: UnpackInputs, parents: Mapping[str, Path], out: Path) -> Result:
    """Files out of an evidence pack, each checked against the hash that is part of this cell's key."""
    copy_files(Path(inputs.how.pack), inputs.files, out, inputs.how.shared, inputs.how.compressed)
    return inputs.result


def copy_files(
    folder: Path,
    files: Mapping[str, PackedFile],
    out: Path,
    shared: Mapping[str, SharedRows] | None = None,
    compressed: Mapping[str, PackedFile] | None = None,
) -> None:
    """Copy files out of a pack, under the names that a finished cell gives them.

    Parameters
    ----------
    files : by that name.
    shared, compressed : of the manifest.
    """
    for target, entry in files.items():
        made_of = (shared or {}).get(entry.file)
        small = (compressed or {}).get(entry.file)
        stored = made_of or small or entry
        source = _inside(folder, stored.file)
        try:
            if stored is entry:
                shutil.copyfile(source, out / target)
            else:
                _require_hash(source, source, stored.sha256)
                if made_of is not None:
                    write_rows([(source, row) for row in made_of.rows], out / target)
                else:
                    (out / target).write_bytes(content(source))
        except OSError as problem:
            raise UserError(f"{source} cannot be read ({problem.strerror}); reinstall genbench") from None
        # The copy, not the source: it is what will be used.
        _require_hash(out / target, source, entry.sha256)
