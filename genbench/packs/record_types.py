"""Small types that records are made of; their limits are the limits of what a board takes from anyone."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["Count", "RecordPart", "Seconds", "Sha256", "Share", "Text"]

Text = Annotated[str, Meta(max_length=200)]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class RecordPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a record: exactly these fields."""
