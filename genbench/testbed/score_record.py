"""The score of a measure on a testbed as a record keeps it."""

from __future__ import annotations

from genbench.scoring.practical import PracticalScore
from genbench.suites.record_types import Count, RecordPart, Share, Text

__all__ = ["PracticalRecord", "practical_record"]


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
    """Wrongly ordered pairs, the surest first."""


def practical_record(score: PracticalScore) -> PracticalRecord:
    """A score as a record keeps it: without its resamples."""
    return PracticalRecord(
        value=score.value,
        low=score.low,
        high=score.high,
        noise_aware=score.noise_aware,
        pairs=score.pairs,
        dropped=score.dropped,
        parts=[PartRecord(**vars(part)) for part in score.parts],
        worst=[PairRecord(**vars(pair)) for pair in score.worst],
    )
