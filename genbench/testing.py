"""For authors of measures: the conformance kit as a pytest fixture.

Installed with genbench as a pytest plugin, so a test needs no import:

    def test_keeps_the_contract(check_measure):
        check_measure("mymeasure").assert_passed()

Importing this module is cheap and loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from genbench.conformance import CheckReport

__all__ = ["check_measure"]


@pytest.fixture
def check_measure() -> Callable[..., CheckReport]:
    """Runs every check on a measure given as `genbench run --measure` takes it: a name or a file."""

    def run(spec: str, *, timeout: float = 60.0, memory: int = 2**31) -> CheckReport:
        from genbench.conformance import run_checks
        from genbench.engine.guard import Limits
        from genbench.plugin.registry import find_measure

        entries = find_measure(spec)
        if len(entries) != 1:
            names = ", ".join(entry.item.name for entry in entries)
            raise ValueError(f"{spec} holds several measures ({names}); name one as {spec}:NAME")
        return run_checks(entries[0].source, entries[0].item.name, Limits(timeout, memory))

    return run
