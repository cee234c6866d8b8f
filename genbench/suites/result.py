"""One measure on the networks of a suite, wherever its readings come from: a run, a record, a reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from genbench.engine.cells import Outcome
from genbench.plugin.contract import MeasureInfo
from genbench.plugin.registry import BUILT_IN, Source
from genbench.scoring.ranking import tied_ranks

if TYPE_CHECKING:
    from genbench.scoring.claims import Claims

__all__ = ["Headline", "Judged", "MeasureResult", "Score"]


class Score(Protocol):
    """What a kind of suite says of a measure; lower is better."""

    @property
    def value(self) -> float:
        """The headline, a sign-error: 0 perfect, ½ a coin, 1 always wrong."""

    @property
    def low(self) -> float:
        """Lower end of its 95 % interval."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def dropped(self) -> int:
        """Networks without a reading."""

    def ties_with(self, other: Any) -> bool:
        """Whether the evidence cannot tell this score from another of the same kind."""


@dataclass(frozen=True)
class Headline:
    """A sign-error with its 95 % interval, as tables show it."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, score: Score) -> Headline:
        """The kind's own, over what it resamples."""
        return cls(score.value, score.low, score.high)


@dataclass(frozen=True)
class MeasureResult:
    """A measure, its readings, and once they are judged its score."""

    measure: MeasureInfo
    source: Source
    """Who offers the measure."""
    outcomes: Mapping[str, Outcome]
    """Network to reading."""
    score: Any = None
    """A `Score`; None where there are too few readings, or none was computed yet."""
    recorded: Struct | None = None
    """Of a reference: its score as recorded (`Kind.score_type`), which need not be computed again."""
    answers: Mapping[str, Mapping[str, float | None]] | None = None
    """Of a reference: question to its recorded value, ends of its interval and p."""
    reference: bool = False
    """Whether its readings are recorded ones, which came with genbench."""

    @property
    def name(self) -> str:
        """Of the measure."""
        return self.measure.name

    @property
    def baseline(self) -> bool:
        """Whether it is an anchor of the table, which is always shown."""
        return self.source.kind == BUILT_IN and self.measure.category == "baseline"

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Network to value, where there is one."""
        read = ((name, outcome.value) for name, outcome in self.outcomes.items())
        return {name: value for name, value in read if value is not None}

    @property
    def direction(self) -> float:
        """What values are multiplied with so that higher means worse."""
        return 1.0 if self.measure.higher_means == "worse" else -1.0

    @property
    def statuses(self) -> list[tuple[str, int]]:
        """Status of a reading to how many have it, most frequent first."""
        return Counter(str(outcome.status) for outcome in self.outcomes.values()).most_common()

    @property
    def seconds(self) -> float:
        """Of all readings, shared parts included."""
        return sum(o.cost.seconds + o.cost.shared_seconds for o in self.outcomes.values())


@dataclass(frozen=True)
class Judged:
    """Measures with their scores."""

    results: Sequence[MeasureResult]
    detail: Any = None
    """What the kind's own pages want to know beside the scores."""
    note: str = ""
    """Why some scores are missing that one could expect."""
    claims: Claims | None = None
    """What may be claimed of these measures; None where a suite does not say what they can be asked."""

    def headline(self, result: MeasureResult) -> Headline | None:
        """Its sign-error and interval: over another draw of networks where that can be told."""
        if result.score is None or self.claims is None:
            return None if result.score is None else Headline.of(result.score)
        chance = self.claims.measures[result.name].questions["chance"]
        if chance.value is None or chance.low is None or chance.high is None:
            return Headline.of(result.score)
        return Headline(chance.value, chance.low, chance.high)

    @cached_property
    def ranked(self) -> list[tuple[int | None, MeasureResult]]:
        """Rank and measure, best first; measures that the evidence cannot tell apart share a rank.

        One more than the number of measures that are better by a paired cluster test, where networks can be
        resampled.
        """
        if self.claims is None:
            ranks = tied_ranks([one.score for one in self.results])
        else:
            ranks = [self.claims.measures[one.name].rank if one.score else None for one in self.results]
        return sorted(
            zip(ranks, self.results, strict=True),
            key=lambda row: (row[1].score is None, row[1].score.value if row[1].score else 0.0, row[1].name),
        )
