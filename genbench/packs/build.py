"""Makes evidence packs, and says how one compares with the same evidence made anew."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from genbench.engine.store import Origin, read_manifest, write_atomically
from genbench.errors import UserError
from genbench.keys import Inputs, file_hash
from genbench.packs.manifest import FORMAT, Packed, PackedFile
from genbench.packs.pack import MANIFEST

__all__ = ["Comparison", "Draft", "PackHead", "new_pack", "packed"]

PackPart = str | msgspec.Struct | Mapping[str, msgspec.Struct] | Sequence[msgspec.Struct]


class PackHead(msgspec.Struct, frozen=True):
    """What the manifest of every pack says of its suite; `evidence` is the suite's content."""

    suite: str
    version: int
    summary: str
    evidence: Inputs


@dataclass(frozen=True)
class Draft:
    """A pack in the making."""

    folder: Path
    parts: dict[str, PackPart]
    """What the suite's kind adds to the manifest: fields of its own type."""


@contextmanager
def new_pack(target: Path, head: PackHead, provenance: Origin) -> Iterator[Draft]:
    """A folder to put files into; it becomes `target`, whole, when nothing went wrong."""
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UserError(f"{target} is neither empty nor an evidence pack; choose a new folder with --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft = Draft(staged, {})
        yield draft
        parts = msgspec.to_builtins(draft.parts)
        manifest = {"format": FORMAT, **msgspec.to_builtins(head), **parts, "built": dict(provenance)}
        write_atomically(staged / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        staged.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def packed(cell: Path, target: Path, name: str, stems: tuple[str, ...]) -> Packed:
    """Copy files of a finished cell into a pack; the entry of its manifest that `unpacked_cell` takes."""
    files = {}
    for source in sorted(cell.iterdir()):
        if source.stem in stems:
            own = f"{name.replace(':', '-').replace('/', '-')}.{source.name}"
            shutil.copyfile(source, target / own)
            files[source.name] = PackedFile(own, file_hash(target / own))
    return Packed(files, read_manifest(cell)["result"])


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
