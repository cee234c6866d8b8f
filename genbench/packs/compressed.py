"""Files of a pack that are stored smaller than they are: xz, tuned to files of weights.

    "mini-regnet-x1-a1.final.safetensors": {"file": "mini-regnet-x1-a1.final.safetensors.xz", "sha256": …}

What counts is the file that comes out: its hash is the entry's own, and part of the keys of cells.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

from genbench.keys import file_hash
from genbench.packs.manifest import PackedFile

__all__ = ["compress", "compress_files", "content"]

_SUFFIX = ".xz"
_MEMORY = 2**27
"""Bytes that uncompressing may take beside what comes out: twice what `compress` asks for."""


_PLACES = (1, 2)
"""Bits of the place of a byte in a number of two or of four: what the byte is likely to be depends on it."""


def compress(file: Path) -> Path:
    """Replace a file by a smaller one, under another name."""
    found = file.read_bytes()
    tries = (
        lzma.compress(found, filters=[{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": n, "pb": n}])
        for n in _PLACES
    )
    small = file.with_name(file.name + _SUFFIX)
    small.write_bytes(min(tries, key=len))
    file.unlink()
    return small


def compress_files(folder: Path, names: Iterable[str]) -> dict[str, PackedFile]:
    """Compress files of a pack; by the name of each, what is stored in its place (`Manifest.compressed`)."""
    small = {name: compress(folder / name) for name in names}
    return {name: PackedFile(file.name, file_hash(file)) for name, file in small.items()}


def content(file: Path) -> bytes:
    """What a file holds, uncompressed if its name says that it is compressed; an OSError if it is damaged."""
    found = file.read_bytes()
    if file.suffix != _SUFFIX:
        return found
    try:
        return lzma.decompress(found, format=lzma.FORMAT_XZ, memlimit=_MEMORY)
    except lzma.LZMAError as problem:
        raise OSError(None, f"damaged: {problem}") from None
