"""Numbers and names as tables and figures say them."""

from __future__ import annotations

__all__ = ["short_count", "short_name"]


def short_count(count: float) -> str:
    """203004 as 203k."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count:.0f}"


def short_name(model: str) -> str:
    """A backbone's name without its family: "mini-clip:rn4" as "rn4"."""
    return model.rpartition(":")[2]
