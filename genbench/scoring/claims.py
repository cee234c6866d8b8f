"""What may be claimed of measures judged together: verdicts, ranks, what baselines reach (SPEC.md 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from genbench.scoring.board_baselines import Baseline, judge_baselines
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.verdicts import Answer, BoardVerdict, MeasureVerdict, judge, told_apart

__all__ = ["Claims", "claim"]


@dataclass(frozen=True)
class Claims:
    """All measures of a board or run, judged together."""

    verdict: BoardVerdict
    baselines: Mapping[str, Baseline]
    tied: Mapping[str, Sequence[str]]
    """Measure to the others that the evidence cannot tell from it."""

    @property
    def measures(self) -> Mapping[str, MeasureVerdict]:
        """Measure to its answers, rank and verdict."""
        return self.verdict.measures

    @property
    def band(self) -> tuple[float, float] | None:
        """5 and 95 % of what random numbers score."""
        random = self.baselines.get("baseline_random")
        return None if random is None or random.band is None else (random.band[0], random.band[1])


def claim(
    known: KnownNetworks,
    readings: Mapping[str, ArrayLike],
    *,
    seed: int = 0,
    answered: Mapping[str, Mapping[str, Answer]] | None = None,
    again: Collection[str] = (),
) -> Claims:
    """Judge measures together; arguments as those of `judge`."""
    verdict = judge(known, readings, seed=seed, answered=answered, again=again)
    return Claims(verdict, judge_baselines(known, readings, seed=seed), _tied(verdict))


def _tied(verdict: BoardVerdict) -> dict[str, list[str]]:
    names = list(verdict.measures)
    scored = [one.rank is not None for one in verdict.measures.values()]
    apart = told_apart(verdict.paired)
    return {
        name: [
            other
            for number, other in enumerate(names)
            if number != place and scored[number] and scored[place] and not apart[place, number]
        ]
        for place, name in enumerate(names)
    }
