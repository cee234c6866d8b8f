"""The score of a measure on a testbed as a record keeps it."""

from __future__ import annotations

from genbench.suites.record_types import Count, RecordPart, Share, Text

__all__ = ["PracticalRecord"]


class PartRecord(RecordPart, frozen=True):
    """One family, slice and statistic."""

    family: Text
    slice: Text
    statistic: Text
    value: Share
    low: Share
    high: Share
    noise_aware: Share | None
    pairs: Count
    sure_pairs: Count
    ties: Count


class PairRecord(RecordPart, frozen=True):
    """Two networks in the wrong order."""

    family: Text
    slice: Text
    better: Text
    worse: Text
    error_better: float
    error_worse: float
    reading_better: float
    reading_worse: float
    certainty: float


class PracticalRecord(RecordPart, frozen=True):
    """Sign-error against the practical metric (SPEC.md section 1), with 95 % intervals."""

    value: Share
    low: Share
    high: Share
    noise_aware: Share | None
    pairs: Count
    dropped: Count
    parts: list[PartRecord]
    """By family, slice and statistic."""
    worst: list[PairRecord]
    """Wrongly ordered pairs, the surest first, at most a hundred."""
    wrong: Count | None = None
    """How many there are, where backbones are adapted in several ways."""
    across_sizes: Share | None = None
    """Over pairs of different backbones; where backbones are adapted in several ways."""
    equal_size: Share | None = None
    """Over pairs of adaptations of one backbone."""
