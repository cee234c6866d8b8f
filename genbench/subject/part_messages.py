"""How a reading asks for a shared part and what it is told; free of torch, as everything about messages."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["PartReply", "PartRequest"]


class PartRequest(msgspec.Struct, frozen=True, tag="part"):
    """A reading asks its host for a part."""

    name: str
    options: dict[str, Any]
    function: str = ""
    """ "module:function" of the reading's own plugin, for a part that is not genbench's."""
    seconds_left: float = 0.0
    """Until the reading's own time is up; filled in by the process that watches it."""


class PartReply(msgspec.Struct, frozen=True):
    """Where the part is, or why there is none."""

    status: str
    """As of a cell."""
    reason: str = ""
    file: str = ""
    seconds: float = 0.0
    """That it took to compute, whoever asked first."""
    value: Any = None
    """Of a plugin's own part."""
    used: list[str] = []
    """What a plugin's own part asked its subject for."""
