"""The scores of a measure on a population as a record keeps them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from genbench.packs.record_types import Count, RecordPart, Share, Text
from genbench.scoring.population import PopulationScore

__all__ = ["PopulationRecord", "population_record"]

Note = Annotated[str, Meta(max_length=1000)]
Number = tuple[
    Text, Text, Text, Text, float | None, float | None, float | None, Count, Count, Count, Count, Count, Note
]
"""One number of `genbench score`: score, target, part, statistic, value, low, high, count, available, rows,
dropped, resamples, note."""


class EnvironmentRecord(RecordPart, frozen=True):
    """Two combinations of hyperparameters whose gaps are ordered wrongly more often than not."""

    hyperparameter: Text
    low_value: Text
    high_value: Text
    fixed: Text
    n_eff: float
    sign_error: Share


class PopulationRecord(RecordPart, frozen=True):
    """Of a population: mean over environments of the sign-error (001), with its 95 % interval over seeds, and
    every other score of the record table. Without several seeds: the sign-error over all pairs of networks,
    with its interval over networks; then no environment is available."""

    value: Share
    low: Share
    high: Share
    environments: Count
    """Kept by the noise filter."""
    available: Count
    dropped: Count
    scores: list[Number]
    """Every number."""
    worst: list[EnvironmentRecord]
    """Where it fails, the worst first."""


def population_record(score: PopulationScore) -> PopulationRecord:
    """A score as a record keeps it: without its resamples."""
    return PopulationRecord(
        value=score.value,
        low=score.low,
        high=score.high,
        environments=score.environments,
        available=score.available,
        dropped=score.dropped,
        scores=list(score.scores),
        worst=[EnvironmentRecord(**vars(one)) for one in score.worst],
    )
