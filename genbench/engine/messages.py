"""What an executor and its workers say to each other: one JSON document a line, each of a type."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from genbench.engine.guard import Limits

__all__ = ["Job", "line", "parse"]

T = TypeVar("T")


class Job(msgspec.Struct, frozen=True):
    """One cell for a worker; it answers with an `Outcome`."""

    step: str
    """Function of the cell's step; that of a reading is empty."""
    inputs: dict[str, Any]
    about: dict[str, Any]
    how: dict[str, Any]
    group: str
    parents: dict[str, str]
    """Name to folder of what the cell reads."""
    out: str
    """Folder for its files."""
    limits: Limits


def line(message: object) -> bytes:
    """A message as a line."""
    return msgspec.json.encode(message) + b"\n"


def parse(text: bytes | str, wanted: type[T]) -> T:
    """The message in a line."""
    return msgspec.json.decode(text, type=wanted)
