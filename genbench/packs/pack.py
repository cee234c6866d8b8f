"""Evidence packs: trained networks and what they do on held-out images, as files with hashes.

Everyone who uses a suite's pack is scored against the same evidence.

    PACK/
      pack.json     format, suite, what determined the evidence, sha256 of every file
      ...           networks and truths, as the suite's kind puts them there (`Kind.fill_pack`)

Nothing in a pack is code. Every file is checked against its hash whenever it is read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.engine.cells import Cell, Step, make_cell
from genbench.engine.store import read_manifest, write_atomically
from genbench.errors import UserError
from genbench.keys import file_hash

__all__ = [
    "FORMAT",
    "MANIFEST",
    "PACKS",
    "Comparison",
    "Draft",
    "Pack",
    "copy_files",
    "new_pack",
    "packed",
    "read_pack",
    "unpack",
    "unpacked_cell",
]

FORMAT = 1
PACKS = "packs"
"""Folder beside a suite's file with the packs that ship with it, by suite."""
MANIFEST = "pack.json"

UNPACKED = Step("unpacked", "genbench.packs.pack:unpack", "unpack evidence", seconds=0.1)
_VERSION = 1
"""Code version of `unpack`; raise it when it would give other bits."""


@dataclass(frozen=True)
class Pack:
    """A pack whose manifest has been read."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def version(self) -> str:
        """Suite, version and the hash of the manifest, which contains every file's."""
        return f"{self.manifest['suite']} v{self.manifest['version']} ({self.hash[:12]})"

    @property
    def hash(self) -> str:
        """sha256 of the manifest."""
        return file_hash(self.folder / MANIFEST)

    @property
    def suite(self) -> str:
        """Name of the suite that it is evidence for."""
        return str(self.manifest["suite"])

    @property
    def content(self) -> dict[str, Any]:
        """What determined the evidence: `Suite.content` of the suite as it was."""
        return dict(self.manifest["evidence"])

    @property
    def data_hash(self) -> str:
        """sha256 of all images."""
        return str(self.manifest["data_hash"])

    def file(self, entry: Mapping[str, str]) -> Path:
        """A file of the pack, unchanged since it was written."""
        source = _inside(self.folder, entry)
        _require_hash(source, source, entry)
        return source


def _inside(folder: Path, entry: Mapping[str, str]) -> Path:
    source = folder / entry["file"]
    if source.parent.resolve() != folder.resolve():
        raise UserError(f"the evidence pack {folder} names a file outside of it: {entry['file']}")
    return source


def _require_hash(file: Path, source: Path, entry: Mapping[str, str]) -> None:
    """Refuse a `file` that is not what the manifest says of `source`."""
    try:
        found = file_hash(file)
    except OSError as problem:
        raise UserError(f"{source} cannot be read ({problem.strerror}); reinstall genbench") from None
    if found != entry["sha256"]:
        raise UserError(
            f"{source} is damaged: its sha256 is not the one in {source.parent / MANIFEST}; reinstall "
            "genbench, or run with --from-scratch"
        )


def read_pack(folder: Path, parts: Sequence[str] = ()) -> Pack:
    """The pack in `folder`; a `UserError` if its manifest is not one.

    Parameters
    ----------
    parts : what its manifest must list, as the suite's kind says.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found = manifest["format"]
        if found == FORMAT:
            for key in ("suite", "version", "evidence", "data_hash", *parts):
                manifest[key]
    except FileNotFoundError:
        raise UserError(f"there is no evidence pack in {folder}: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"{path} cannot be read as an evidence pack ({problem!r})") from None
    if found != FORMAT:
        raise UserError(
            f"{path} has format {found}, and this genbench reads format {FORMAT}; update genbench"
        )
    return Pack(folder, manifest)


# -- taking out --------------------------------------------------------------------------------------


def unpacked_cell(pack: Pack, name: str, entry: Mapping[str, Any], *, on_demand: bool = False) -> Cell:
    """The cell that takes `entry` of a manifest out of a pack.

    Keyed by content, not by how it was made: everyone is scored against the same bytes.
    """
    return make_cell(
        UNPACKED,
        f"{name} from the evidence pack",
        {"step": _VERSION, "files": entry["files"], "result": entry["result"]},
        how={"pack": str(pack.folder)},
        on_demand=on_demand,
    )


def unpack(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Files out of an evidence pack, each checked against the hash that is part of this cell's key."""
    copy_files(Path(inputs["how"]["pack"]), inputs["files"], out)
    result: dict[str, Any] = inputs["result"]
    return result


def copy_files(folder: Path, files: Mapping[str, Mapping[str, str]], out: Path) -> None:
    """Copy files out of a pack, under the names that a finished cell gives them.

    `files` maps that name to the file's own name in the pack and its sha256.
    """
    for target, entry in files.items():
        source = _inside(folder, entry)
        try:
            shutil.copyfile(source, out / target)
        except OSError as problem:
            raise UserError(f"{source} cannot be read ({problem.strerror}); reinstall genbench") from None
        # The copy, not the source: it is what will be used.
        _require_hash(out / target, source, entry)


# -- putting in --------------------------------------------------------------------------------------


@contextmanager
def new_pack(target: Path, about: Mapping[str, Any], provenance: Mapping[str, Any]) -> Iterator[Draft]:
    """A folder to put files into; it becomes `target`, whole, when nothing went wrong.

    Parameters
    ----------
    about : `suite`, `version`, `summary` and `evidence`, the content of the suite.
    """
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UserError(f"{target} is neither empty nor an evidence pack; choose a new folder with --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft = Draft(staged, {})
        yield draft
        manifest = {
            "format": FORMAT,
            **about,
            **draft.manifest,
            "built": dict(provenance),
        }
        write_atomically(staged / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        staged.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@dataclass(frozen=True)
class Draft:
    """A pack in the making."""

    folder: Path
    manifest: dict[str, Any]
    """What the suite's kind adds to the manifest."""


def packed(cell: Path, target: Path, name: str, stems: tuple[str, ...]) -> dict[str, Any]:
    """Copy files of a finished cell into a pack; the entry of its manifest that `unpacked_cell` takes."""
    files = {}
    for source in sorted(cell.iterdir()):
        if source.stem in stems:
            own = f"{name.replace(':', '-').replace('/', '-')}.{source.name}"
            shutil.copyfile(source, target / own)
            files[source.name] = {"file": own, "sha256": file_hash(target / own)}
    return {"files": files, "result": read_manifest(cell)["result"]}


@dataclass(frozen=True)
class Comparison:
    """One part of a pack against the same made anew."""

    name: str
    same_bits: bool
    difference: float
    """Largest absolute difference: of a weight, a statistic of a cube, or a gap."""
    tolerance: float | None
    """What `difference` may be; None where only what follows from it counts."""

    @property
    def agrees(self) -> bool:
        """Whether the pack is confirmed."""
        return self.same_bits or self.tolerance is None or self.difference <= self.tolerance
