"""Evidence packs: adapted networks and cubes as files with hashes, so that all are scored against the same.

    PACK/
      pack.json                       format, suite, what determined the evidence, sha256 of every file
      <backbone>.final.safetensors    adapted weights, fp16
      <backbone>.trace.safetensors    what adaptation recorded
      <family>.cube.nc                the cube
      noise.json                      how each SSIM level was reached

Nothing in a pack is code. Every file is checked against its hash whenever it is read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.suites import TestbedSuite

__all__ = ["FORMAT", "PACKS", "Pack", "copy_files", "find_pack", "read_pack"]

FORMAT = 1
PACKS = Path(__file__).parent.parent / "suites" / "packs"
"""Packs that ship with genbench, by suite."""
MANIFEST = "pack.json"


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

    def serves(self, suite: TestbedSuite) -> bool:
        """Whether the pack is evidence for `suite`: the same in everything, perhaps of fewer backbones."""
        own, asked = (_plain(settings) for settings in (self.manifest["evidence"], suite.evidence()))
        have, want = set(own["testbed"].pop("backbones")), set(asked["testbed"].pop("backbones"))
        return own == asked and want <= have and not suite.quick


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy as JSON would give it back, so that tuples and lists compare."""
    copied: dict[str, Any] = json.loads(json.dumps(settings))
    return copied


def read_pack(folder: Path) -> Pack:
    """The pack in `folder`; a `UserError` if its manifest is not one."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found = manifest["format"]
        for key in ("suite", "version", "evidence", "networks", "cubes"):
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


def find_pack(suite: TestbedSuite) -> Pack | None:
    """The shipped pack that is evidence for `suite`, if there is one."""
    folder = PACKS / suite.name
    if not (folder / MANIFEST).is_file():
        return None
    pack = read_pack(folder)
    return pack if pack.serves(suite) else None


def copy_files(folder: Path, files: Mapping[str, Mapping[str, str]], out: Path) -> None:
    """Copy files out of a pack, under the names that a finished cell gives them.

    `files` maps that name to the file's own name in the pack and its sha256.
    """
    for target, entry in files.items():
        source = folder / entry["file"]
        if source.parent.resolve() != folder.resolve():
            raise UserError(f"the evidence pack {folder} names a file outside of it: {entry['file']}")
        try:
            shutil.copyfile(source, out / target)
        except OSError as problem:
            raise UserError(f"{source} cannot be read ({problem.strerror}); reinstall genbench") from None
        if file_hash(out / target) != entry["sha256"]:
            raise UserError(
                f"{source} is damaged: its sha256 is not the one in {folder / MANIFEST}; reinstall genbench, "
                "or run with --from-scratch"
            )
