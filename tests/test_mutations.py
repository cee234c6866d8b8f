"""Files that are truncated, damaged or lie are read or refused in one sentence, never an internal error."""

from __future__ import annotations

import pytest
from mutations import Format, formats, try_format

EVERY = {one.name: one for one in formats()}


@pytest.mark.parametrize("name", EVERY)
def test_a_sample_of_mutated_files(name: str) -> None:
    """The script makes 2,000."""
    sample: Format = EVERY[name]
    found = try_format(sample, 12, seed=3)
    assert set(found) <= {"read", "refused"}, found
    assert sum(found.values()) == 12
