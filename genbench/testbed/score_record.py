"""The score of a measure on a testbed as a record keeps it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from genbench.packs.record_types import Count, RecordPart, Share, Text
from genbench.scoring.practical import PracticalScore

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
    """Wrongly ordered pairs, the surest first, at most a hundred."""
    wrong: Count | UnsetType = UNSET
    """How many there are, where backbones are adapted in several ways."""
    across_sizes: Share | UnsetType = UNSET
    """Over pairs of different backbones; where backbones are adapted in several ways."""
    equal_size: Share | UnsetType = UNSET
    """Over pairs of adaptations of one backbone."""


def practical_record(score: PracticalScore) -> PracticalRecord:
    """A score as a record keeps it: without its resamples."""
    several = score.across_sizes is not None or score.equal_size is not None
    return PracticalRecord(
        value=score.value,
        low=score.low,
        high=score.high,
        noise_aware=score.noise_aware,
        pairs=score.pairs,
        dropped=score.dropped,
        parts=[PartRecord(**vars(part)) for part in score.parts],
        worst=[PairRecord(**vars(pair)) for pair in score.worst],
        wrong=score.wrong if several else UNSET,
        across_sizes=UNSET if score.across_sizes is None else score.across_sizes,
        equal_size=UNSET if score.equal_size is None else score.equal_size,
    )
