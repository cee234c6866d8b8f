"""Files of stacked tensors that have rows in common, stored once.

A stack's file holds tensors (networks, …), and row i of all of them is network i. The weights before training
depend on shape and seed alone, so stacks that differ in anything else have rows in common. A pack keeps each
distinct row once; a file is then made of rows of a stored one, and comes out with the bits it went in with.

    "stack-03.initial.safetensors": {"file": "initial-01.safetensors", "sha256": …, "rows": [0, 1, 2, 0, 1]}

Files are read and written here byte by byte: another version of the safetensors library might order or pad a
header in another way, and the hash of a file that is put together anew must be that of the original. A stored
file may be compressed (its name then ends in .xz): rows of one training resemble each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.keys import canonical_json, file_hash
from genbench.packs.compressed import compress as compress_file
from genbench.packs.compressed import content as file_content
from genbench.packs.manifest import SharedRows

__all__ = ["share_rows", "write_rows"]

_LENGTH = 8
"""A safetensors file: the length of the header in as many bytes, the header, then the tensors."""


@dataclass(frozen=True)
class _Tensor:
    name: str
    dtype: str
    shape: list[int]
    """Of one row."""
    rows: list[bytes]


def _read(file: Path) -> list[_Tensor]:
    """The tensors of a file in the order in which they lie there."""
    content = file_content(file)
    start = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    found = []
    header = json.loads(content[_LENGTH:start])
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, end = (start + offset for offset in about["data_offsets"])
        count, *shape = about["shape"]
        size = (end - first) // count
        rows = [content[place : place + size] for place in range(first, end, size)]
        found.append(_Tensor(name, about["dtype"], shape, rows))
    return found


def write_rows(rows: Sequence[tuple[Path, int]], target: Path) -> None:
    """Write a file of the given rows (file, row), all of files with the same tensors."""
    files = {file: _read(file) for file in dict.fromkeys(file for file, _ in rows)}
    header: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    end = 0
    for place, tensor in enumerate(files[rows[0][0]]):
        parts += (own := [files[file][place].rows[row] for file, row in rows])
        start, end = end, end + sum(map(len, own))
        shape = [len(rows), *tensor.shape]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    target.write_bytes(b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts]))


def share_rows(
    folder: Path, names: Sequence[str], stem: str, *, compress: bool = False
) -> dict[str, SharedRows]:
    """Replace files of a pack by files `stem`-NN that hold each distinct row once.

    Returns, by the name of each file that is gone, what it is made of.
    """
    stored: dict[str, dict[str, tuple[Path, int]]] = {}
    """Layout of a file to its distinct rows, by hash, and where each was found first."""
    made_of: dict[str, tuple[str, list[int]]] = {}
    for name in names:
        tensors = _read(folder / name)
        layout = canonical_json([[t.name, t.dtype, t.shape] for t in tensors])
        known = stored.setdefault(layout, {})
        hashes = [
            hashlib.sha256(b"".join(row)).hexdigest() for row in zip(*(t.rows for t in tensors), strict=True)
        ]
        for row, mark in enumerate(hashes):
            known.setdefault(mark, (folder / name, row))
        place = {mark: number for number, mark in enumerate(known)}
        made_of[name] = (layout, [place[mark] for mark in hashes])
    entries = {}
    for number, (layout, known) in enumerate(stored.items()):
        file = folder / f"{stem}-{number:02d}.safetensors"
        write_rows(list(known.values()), file)
        file = compress_file(file) if compress else file
        entries[layout] = (file.name, file_hash(file))
    for name in names:
        (folder / name).unlink()
    return {name: SharedRows(*entries[layout], rows) for name, (layout, rows) in made_of.items()}
