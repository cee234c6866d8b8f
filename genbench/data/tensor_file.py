"""Large tensors in files: written part by part, read row by row.

The files are safetensors. The library itself takes a whole tensor to write one, and maps a file in a way that
counts as memory of the process: all of it where a limit on data is set, and every page that was read.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

__all__ = ["Joined", "RowFile", "read_row", "write_rows"]

_TYPES = {
    "U8": torch.uint8,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_RELEASED = 2**24
"""Bytes that are read before the pages they lie on are given back: resident memory stays below about this."""
_CPU = torch.device("cpu")


class RowFile:
    """One tensor of a safetensors file, (n, ...): mapped read-only, its rows copied out when asked for.

    Rows come out in memory of their own. Pages of the file that were read are given back now and then, so
    that they do not add up to the whole file in the resident memory that limits are held against.
    """

    device = _CPU

    def __init__(self, path: Path, name: str) -> None:
        with path.open("rb") as file:
            length, described = _read_header(file)
            about = described[name]
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.dtype = _TYPES[about["dtype"]]
        self.shape = torch.Size(about["shape"])
        begin, end = about["data_offsets"]
        self._row = self.shape[1:].numel() * self.dtype.itemsize
        """Bytes of one row."""
        content = np.frombuffer(self._map, np.uint8)[8 + length :][begin:end]
        self._bytes = content.reshape(self.shape[0], self._row)
        self._read = 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Copies of these rows, in their order."""
        if isinstance(rows, slice):
            found = self._bytes[rows]
            out = torch.empty(found.shape, dtype=torch.uint8, device=_CPU)
            out.numpy()[...] = found
        else:
            numbers = rows.numpy()
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(self)):
                raise IndexError(f"rows {numbers.min()} to {numbers.max()} of a file that has {len(self)}")
            out = torch.empty(len(numbers), self._row, dtype=torch.uint8, device=_CPU)
            np.take(self._bytes, numbers, axis=0, out=out.numpy(), mode="clip")  # unlike "raise", no buffer
        # Around a page that is read many more are mapped, so that scattered rows soon map the whole file.
        self._give_back(out.numel() if isinstance(rows, slice) else _RELEASED)
        return out.view(self.dtype).reshape(len(out), *self.shape[1:])

    def batch(self, indices: Tensor) -> Tensor:
        """Copies of these rows, as an `ImageSplit` gives them."""
        return self[indices]

    def _give_back(self, read: int) -> None:
        self._read += read
        if self._read >= _RELEASED and len(self._map) > _RELEASED and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0


class Joined:
    """The rows of several files, one file after the other."""

    device = _CPU

    def __init__(self, files: Sequence[RowFile]) -> None:
        self._files = [file for file in files if len(file)] or list(files[:1])

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum([len(file) for file in self._files]).tolist()]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Copies of these rows, in their order."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)), device=_CPU)
        parts = list(zip(self._files, self._starts, strict=False))
        found = None
        for file, start in parts:
            here = (rows >= start) & (rows < start + len(file))
            if bool(here.all()):
                return file[rows - start]
            chosen = file[rows[here] - start]
            found = chosen.new_empty(len(rows), *chosen.shape[1:]) if found is None else found
            found[here] = chosen
        assert found is not None
        return found


@lru_cache(maxsize=4)
def _places(path: Path) -> list[tuple[str, torch.dtype, torch.Size, int]]:
    """Name, type and shape, and where the first row begins, of every tensor of a file."""
    with path.open("rb") as file:
        length, described = _read_header(file)
    return [
        (name, _TYPES[about["dtype"]], torch.Size(about["shape"]), 8 + length + about["data_offsets"][0])
        for name, about in described.items()
        if name != "__metadata__"
    ]


def read_row(path: Path, place: int) -> dict[str, Tensor]:
    """Row `place` of every tensor of a file, each in memory of its own; nothing else is read or mapped.

    Parameters
    ----------
    path : a file whose content never changes, as those of a store: where its rows lie is looked up once.
    """
    rows = {}
    with path.open("rb", buffering=0) as file:
        for name, dtype, shape, start in _places(path):
            row = torch.empty(shape[1:], dtype=dtype, device=_CPU)
            into = row.view(-1).view(torch.uint8).numpy()
            file.seek(start + place * len(into))
            if not 0 <= place < shape[0] or file.readinto(into.data) != len(into):
                raise IndexError(f"{path} has no row {place} of {name}")
            rows[name] = row
    return rows


def _read_header(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """The length of the JSON text that a file begins with, and what it says of each tensor."""
    (length,) = struct.unpack("<Q", file.read(8))
    return length, json.loads(file.read(length))


def write_rows(
    path: Path, name: str, parts: Iterable[Tensor], count: int, whole: Mapping[str, Tensor] | None = None
) -> torch.Size:
    """Write the rows of `parts`, `count` in all, as one tensor, and small ones beside it; give its shape.

    No more than one part is held at a time; there must be one, if empty. The bytes are those of safetensors'
    own `save_file`, as long as the large tensor's type is not wider than the others'.
    """
    written, shape = 0, torch.Size()
    with path.open("wb") as file:
        for part in parts:
            part = part.detach().to(_CPU).contiguous()
            if not shape:
                shape = torch.Size((count, *part.shape[1:]))
                file.write(_header(name, part.dtype, shape, whole or {}))
                for tensor in (whole or {}).values():
                    file.write(_content(tensor))
            file.write(_content(part))
            written += len(part)
    if written != count or not shape:
        raise ValueError(f"{path.name}: {written} rows came, {count} were announced")
    return shape


def _content(tensor: Tensor) -> Any:
    return tensor.contiguous().flatten().view(torch.uint8).numpy()


def _header(name: str, dtype: torch.dtype, shape: torch.Size, whole: Mapping[str, Tensor]) -> bytes:
    """The length of a JSON text, and the text: what lies where."""
    about: dict[str, Any] = {}
    place = 0
    tensors = [(key, value.dtype, value.shape) for key, value in whole.items()]
    for key, form, size in [*tensors, (name, dtype, shape)]:
        end = place + size.numel() * form.itemsize
        about[key] = {"dtype": _NAMES[form], "shape": list(size), "data_offsets": [place, end]}
        place = end
    text = json.dumps(about, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that what follows is aligned
    return struct.pack("<Q", len(text)) + text
