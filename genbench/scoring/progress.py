"""How far a score has come: told in shares of the whole, so that whoever listens can draw a bar."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tick", "part_of", "quiet"]

Tick = Callable[[float], None]
"""Called with the share of a score's work that was done since the last call; all calls add up to 1."""


def quiet(share: float) -> None:
    """Nobody listens."""


def part_of(tick: Tick, whole: float) -> Tick:
    """A tick for a piece of work that is `whole` of all."""
    return lambda share: tick(share * whole)
