"""How a plugin offers a kind of suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["SuiteKind"]


@dataclass(frozen=True)
class SuiteKind:
    """A kind of suite: `create()` gives its `genbench.suites.kind.Kind`.

    A record of its own, so that listings load no kind before a suite of it is read.
    """

    name: str
    """What a suite's TOML says: `kind = "testbed"`."""
    summary: str
    create: Callable[[], object] = field(repr=False)
