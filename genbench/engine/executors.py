"""What an executor is: it is handed trips for its slots, and says how each cell of them ended.

The scheduler decides what runs next and writes to the store; an executor computes, here or elsewhere. What
passes between them is data: a `Slot` that only its executor can read, a `Trip`, and `Ended` or `Note`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from genbench.engine.cells import Assignment
from genbench.engine.messages import Ended

__all__ = ["CellExecutor", "Ended", "Note", "Slot", "Trip"]


class Slot(msgspec.Struct, frozen=True):
    """A place that has room for one trip."""

    name: str
    """The executor's own; nobody else makes anything of it."""
    group: str = ""
    """Of the cells whose subject it has loaded: others of this group are done sooner here than elsewhere."""
    node: str = ""
    """The machine it is on, for people; empty for this one."""


class Trip(msgspec.Struct, frozen=True):
    """Cells to be computed one after another: a single one, or readings that belong together.

    Readings of one network follow each other; where there are few of each, those of several networks do.
    """

    cells: tuple[Assignment, ...]


class Note(msgspec.Struct, frozen=True):
    """Something a person should know, such as a machine that was lost."""

    text: str


class CellExecutor(Protocol):
    """What an executor plugin's `create(request)` returns."""

    def free(self) -> list[Slot]:
        """Slots that can take a trip now, the best first."""
        ...

    def submit(self, slot: Slot, trip: Trip) -> None:
        """Start computing; `slot` is one that `free` has just given."""
        ...

    def wait(self, seconds: float) -> list[Ended | Note]:
        """What happened within `seconds`: an `Ended` for every cell, once, under the cell's key."""
        ...

    def close(self) -> None:
        """Stop everything at once."""
        ...
