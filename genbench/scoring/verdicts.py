"""What a board may claim of its measures: answers to four questions, verdicts and ranks (SPEC.md 6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from genbench.scoring.blas import one_blas_thread
from genbench.scoring.bootstrap import RESAMPLES
from genbench.scoring.intervals import Spread, cluster_intervals, measured_spread, paired_p
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.permutations import PERMUTATIONS
from genbench.scoring.questions import QUESTIONS, ask, ask_chance
from genbench.scoring.resample_networks import draw_networks

__all__ = [
    "LEVEL",
    "Answer",
    "BoardVerdict",
    "Headlines",
    "MeasureVerdict",
    "VerdictDocument",
    "headlines",
    "holm",
    "judge",
    "told_apart",
]

Floats = NDArray[np.float64]

LEVEL = 0.05
_ROUNDING = 1e-5
"""Of answers, at most: sums end in other last bits where other measures stand beside one."""


@dataclass(frozen=True)
class Answer:
    """One question about one measure; all None where it cannot be asked."""

    value: float | None = None
    """The sign-error: 0 perfect, ½ a coin, 1 always wrong."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Of a measure that says nothing."""
    p_holm: float | None = None
    """The same after Holm over the measures of the board."""


class VerdictDocument(Struct, frozen=True):
    """What may be claimed of a measure, as `--json` has it; the sign-error is the answer about chance."""

    sign_error: float | None
    low: float | None
    high: float | None
    rank: int | None
    questions: dict[str, Answer]
    verdict: list[str]


@dataclass(frozen=True)
class MeasureVerdict:
    """What may be claimed of a measure."""

    rank: int | None
    """One more than the number of measures that are surely better; None without a sign-error."""
    questions: dict[str, Answer]
    verdict: list[str]
    """The questions it passes, in their order; it passes none after one that it fails."""
    dropped: int = 0
    """Networks without a reading."""

    def document(self) -> VerdictDocument:
        """As `--json` has it."""
        chance = self.questions["chance"]
        return VerdictDocument(chance.value, chance.low, chance.high, self.rank, self.questions, self.verdict)


@dataclass(frozen=True)
class BoardVerdict:
    """All measures of a board, judged together."""

    measures: dict[str, MeasureVerdict]
    cannot_ask: dict[str, str]
    """Question to why nobody was asked it."""
    paired: Floats = field(repr=False, compare=False)
    """(measures, measures) p-values that two sign-errors are the same; NaN without a sign-error."""


@one_blas_thread
def judge(
    known: KnownNetworks,
    readings: Mapping[str, ArrayLike],
    *,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    answered: Mapping[str, Mapping[str, Answer]] | None = None,
    again: Collection[str] = (),
) -> BoardVerdict:
    """Ask every measure the four questions.

    Parameters
    ----------
    readings : measure to its values in the order of `known.names`, oriented so that higher means worse. A
        missing or infinite value leaves that network out for that measure.
    answered : measure to answers that are known already, from the same readings; it is not asked again, but
        counts in Holm's correction and in ranks. A measure's answers depend on those beside it by rounding
        alone.
    again : measures that are asked all the same; an answer that agrees with the known one but for rounding
        leaves that as it is.
    """
    names = list(readings)
    values = _as_array(known, readings)
    draws = draw_networks(known.cluster, known.family, resamples, seed)
    answers: dict[str, dict[str, Answer]] = {
        name: {q: one for q, one in (answered or {}).get(name, {}).items() if one.value is not None}
        for name in names
    }
    expected = {name: answers[name] for name in again}
    answers.update((name, {}) for name in again)
    fresh = [place for place, name in enumerate(names) if not answers[name]]
    finite = np.isfinite(values)
    for pattern in _patterns(finite, fresh):
        rows = finite[:, pattern[0]]
        some = known if rows.all() else known.take(rows)
        for question, asked in ask(some).items():
            if isinstance(asked, str):
                continue
            entering = asked.entering(values[rows][:, pattern])
            errors = asked.pairs.sign_errors(entering)
            p = asked.p(entering, permutations, seed)
            low, high, _ = cluster_intervals(asked, some, entering, draws.of(rows))
            for place, *numbers in zip(pattern, errors, low, high, p, strict=True):
                answer, before = Answer(*map(float, numbers)), expected.get(names[place], {}).get(question)
                answers[names[place]][question] = (
                    before if before is not None and _agree(answer, before) else answer
                )
    corrected = _with_holm(answers)
    found = [corrected[name]["chance"].value for name in names]
    paired = _paired(known, values, draws.copies.shape[1])
    ranks = _ranks(found, paired)
    return BoardVerdict(
        measures={
            name: MeasureVerdict(
                ranks[place], corrected[name], _passed(corrected[name]), int((~finite[:, place]).sum())
            )
            for place, name in enumerate(names)
        },
        cannot_ask={name: asked for name, asked in ask(known).items() if isinstance(asked, str)},
        paired=paired,
    )


def _agree(one: Answer, other: Answer) -> bool:
    """But for rounding."""
    return all(
        mine is not None and theirs is not None and abs(mine - theirs) <= _ROUNDING
        for name, mine in vars(one).items()
        if name != "p_holm"
        for theirs in [getattr(other, name)]
    )


@dataclass(frozen=True, eq=False)
class Headlines:
    """Headline sign-errors of several readings; NaN where there is none."""

    values: Floats
    low: Floats
    high: Floats
    paired: Floats
    """(readings, readings) p-values that two are the same."""


def headlines(
    known: KnownNetworks, readings: Mapping[Any, ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0
) -> Headlines:
    """The sign-errors of `judge` with their intervals and paired tests, and no more."""
    array = _as_array(known, readings)
    finite = np.isfinite(array)
    draws = draw_networks(known.cluster, known.family, resamples, seed)
    numbers = np.full((3, len(readings)), np.nan)
    for pattern in _patterns(finite):
        rows = finite[:, pattern[0]]
        some = known if rows.all() else known.take(rows)
        asked = ask_chance(some)
        if isinstance(asked, str):
            continue
        own = array[rows][:, pattern]
        low, high, _ = cluster_intervals(asked, some, own, draws.of(rows))
        numbers[:, pattern] = asked.pairs.sign_errors(own), low, high
    values, low, high = numbers
    return Headlines(values, low, high, _paired(known, array, draws.copies.shape[1]))


def _as_array(known: KnownNetworks, readings: Mapping[Any, ArrayLike]) -> Floats:
    rows = [np.asarray(values, dtype=np.float64) for values in readings.values()]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(known)).T


def _paired(known: KnownNetworks, readings: Floats, clusters: int) -> Floats:
    """(readings, readings) p-values that two headlines are the same; NaN without a headline."""
    finite = np.isfinite(readings)
    count = readings.shape[1]
    spreads: list[Spread] = []
    order: list[int] = []
    values: list[Floats] = []
    for pattern in _patterns(finite):
        rows = finite[:, pattern[0]]
        some = known if rows.all() else known.take(rows)
        asked = ask_chance(some)
        if isinstance(asked, str):
            continue
        own = readings[rows][:, pattern]
        spreads.append(measured_spread(asked, some, own, clusters))
        values.append(asked.pairs.sign_errors(own))
        order += pattern
    paired = np.full((count, count), np.nan)
    if spreads:
        paired[np.ix_(order, order)] = paired_p(np.concatenate(values), Spread.together(spreads))
    return paired


def _patterns(finite: NDArray[np.bool_], places: Iterable[int] | None = None) -> list[list[int]]:
    """Measures, all or those in `places`, that miss the same networks, together."""
    found: dict[bytes, list[int]] = {}
    for place in range(finite.shape[1]) if places is None else places:
        found.setdefault(finite[:, place].tobytes(), []).append(place)
    return list(found.values())


def _with_holm(answers: Mapping[str, Mapping[str, Answer]]) -> dict[str, dict[str, Answer]]:
    complete = {name: {q: own.get(q, Answer()) for q in QUESTIONS} for name, own in answers.items()}
    for question in QUESTIONS:
        asked = [name for name in complete if complete[name][question].p is not None]
        corrected = holm([complete[name][question].p or 0.0 for name in asked])
        for name, p in zip(asked, corrected, strict=True):
            one = complete[name][question]
            complete[name][question] = Answer(one.value, one.low, one.high, one.p, float(p))
    return complete


def _passed(answers: Mapping[str, Answer]) -> list[str]:
    passed: list[str] = []
    for question in QUESTIONS:
        p = answers[question].p_holm
        if p is None or p > LEVEL:
            break
        passed.append(question)
    return passed


def holm(p: ArrayLike) -> Floats:
    """p-values after Holm's step-down correction over all of them."""
    given = np.asarray(p, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def told_apart(paired: Floats) -> NDArray[np.bool_]:
    """(measures, measures) whether the one in the row differs from that in the column, at 5 % after Holm over
    all others of the row."""
    apart = np.zeros(paired.shape, dtype=bool)
    for place, row in enumerate(paired):
        others = np.flatnonzero(np.isfinite(row) & (np.arange(len(row)) != place))
        apart[place, others] = holm(row[others]) <= LEVEL
    return apart


def _ranks(found: list[float | None], paired: Floats) -> list[int | None]:
    values = np.array(found, dtype=np.float64)
    better = told_apart(paired) & (values < values[:, None])
    return [None if value is None else 1 + int(row.sum()) for value, row in zip(found, better, strict=True)]
