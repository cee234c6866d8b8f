"""Numbers and names as tables and figures say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genbench.engine.cells import Outcome

__all__ = ["reading_note", "short_count", "short_name"]


def reading_note(outcome: Outcome) -> str:
    """What to know of a reading beside its value: why there is none, or that its error hides its sign."""
    error = outcome.result.get("detail", {}).get("standard_error")
    if outcome.value is not None and error and abs(outcome.value) <= 2 * error:
        return f"not told from 0: its standard error is {error:.2g}"
    return outcome.reason


def short_count(count: float) -> str:
    """203004 as 203k."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count:.0f}"


def short_name(model: str) -> str:
    """A backbone's name without its family: "mini-clip:short4" as "short4"."""
    return model.rpartition(":")[2]
