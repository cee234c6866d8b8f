"""Sign-error against the practical metric (004 Eq. 6 and 7): per family, slice and statistic.

What does not depend on a measure is computed once, for all of them; `testbed.truth` takes it from cubes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from genbench.scoring.blas import one_blas_thread
from genbench.scoring.pairs import pair_weights
from genbench.scoring.ranking import differ_surely

__all__ = [
    "HEADLINE",
    "SLICES",
    "SLICE_NAMES",
    "STATISTICS",
    "STATISTIC_NAMES",
    "JudgedModel",
    "Part",
    "PracticalScore",
    "PracticalTruth",
    "Slice",
    "SliceErrors",
    "WorstPair",
]

Array = NDArray[np.float64]

SLICES = ("robustness", "zero_shot")
SLICE_NAMES = {"robustness": "robustness", "zero_shot": "zero-shot"}
"""As tables and pages say them."""
STATISTICS = ("mean", "sd", "p10")
STATISTIC_NAMES = {"mean": "M", "sd": "SD", "p10": "P10"}
"""As the paper calls them: mean, standard deviation and 10th percentile over classes."""
HEADLINE = "mean"
RESAMPLES = 1000
_MOST_WRONG = 100
"""Wrongly ordered pairs that are told of, the surest; suites of many networks have thousands."""


@dataclass(frozen=True)
class Part:
    """The sign-error in one family, slice and statistic."""

    family: str
    slice: str
    statistic: str
    value: float
    low: float
    high: float
    noise_aware: float | None
    """Pairs weighed by how surely the truth orders them; None if it is sure of none."""
    pairs: int
    sure_pairs: int
    """Pairs with a positive weight in `noise_aware`."""
    ties: int
    """Pairs with equal readings; each counts ½."""


@dataclass(frozen=True)
class WorstPair:
    """Two models that a measure orders against the truth."""

    family: str
    slice: str
    better: str
    """The model with the lower error."""
    worse: str
    error_better: float
    error_worse: float
    reading_better: float
    reading_worse: float
    certainty: float
    """Difference of the errors in standard deviations of its bootstrap."""


@dataclass(frozen=True)
class PracticalScore:
    """The sign-errors of one measure."""

    value: float
    """The headline: SE of the mean error, averaged over slices and families."""
    low: float
    high: float
    noise_aware: float | None
    pairs: int
    """Pairs of models behind it, over all families; each is judged in both slices."""
    dropped: int
    """Models left out because the measure gave no finite reading."""
    parts: list[Part]
    worst: list[WorstPair]
    """Wrongly ordered pairs, the surest first, at most a hundred."""
    resampled: Array = field(repr=False, compare=False)
    """(resamples,) the headline under each resample; the same resamples for all measures."""
    across_sizes: float | None = None
    """Its part over pairs of different backbones; None where each backbone is adapted once."""
    equal_size: float | None = None
    """Its part over pairs of adaptations of one backbone."""
    wrong: int = 0
    """Wrongly ordered pairs, over both slices, told of or not."""

    def ties_with(self, other: PracticalScore) -> bool:
        """Whether the 95 % interval of the paired difference includes 0."""
        return not differ_surely(self.resampled, other.resampled)

    def slice_value(self, name: str) -> float:
        """SE of the mean error in one slice, averaged over families."""
        return float(np.mean([p.value for p in self.parts if p.slice == name and p.statistic == HEADLINE]))


@dataclass(frozen=True)
class Slice:
    """The marginal d of one slice of one family."""

    images: int
    """Held-out images behind it, m."""
    truth: dict[str, Array]
    """Statistic to d, (models,)."""
    resampled: dict[str, Array]
    """Statistic to d under each resample, (resamples, models)."""

    @cached_property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs of models."""
        first, second = np.triu_indices(len(self.truth[HEADLINE]), k=1)
        return first, second

    @cached_property
    def resampled_signs(self) -> dict[str, NDArray[np.int8]]:
        """Statistic to sgn(d − d') of all pairs under each resample, (resamples, pairs): the same for all
        measures, and much of the work where there are many networks."""
        first, second = self.pairs
        return {
            name: np.sign(drawn[:, first] - drawn[:, second]).astype(np.int8)
            for name, drawn in self.resampled.items()
        }

    @cached_property
    def noise(self) -> Array:
        """(pairs,) bootstrap standard deviation of d − d' of the headline statistic."""
        first, second = self.pairs
        drawn = self.resampled[HEADLINE]
        return np.asarray((drawn[:, first] - drawn[:, second]).std(axis=0))

    def difference(self, statistic: str = HEADLINE) -> Array:
        """(pairs,) d − d'."""
        first, second = self.pairs
        d = self.truth[statistic]
        return np.asarray(d[first] - d[second])


@dataclass(frozen=True)
class _Resampled:
    """Several measures in one slice, under its resamples."""

    readings: Array
    """(measures, models); NaN where a measure is not judged on a model."""
    errors: dict[str, Array]
    """Statistic to sign-errors, (measures, resamples)."""
    ends: dict[str, Array]
    """Statistic to their 95 % intervals, (2, measures)."""


class SliceErrors(Struct, frozen=True):
    """`STATISTICS` over classes of a model's held-out error in a slice."""

    mean: float
    sd: float
    p10: float


class JudgedModel(Struct, frozen=True):
    """What is known of a model: its size, and its errors in every one of `SLICES`."""

    family: str
    weights: float
    robustness: SliceErrors
    zero_shot: SliceErrors

    def error(self, name: str) -> float:
        """The one that headlines are judged by, in a slice."""
        errors: SliceErrors = getattr(self, name)
        headline: float = getattr(errors, HEADLINE)
        return headline


@dataclass(frozen=True)
class PracticalTruth:
    """What measures are judged against: the slices of all families, with their resamples."""

    models: dict[str, list[str]]
    """Family to the names of its models."""
    weights: dict[str, float]
    """Model to weight count."""
    slices: dict[tuple[str, str], Slice]
    """(family, slice) to marginal."""
    backbones: Mapping[str, str] = field(default_factory=dict)
    """Model to the backbone that it is an adaptation of; empty where each backbone is adapted once."""
    unconverged: frozenset[str] = frozenset()
    """Models that did not reach the training loss of the others: no measure is judged on them."""

    def score(self, readings: Mapping[str, float]) -> PracticalScore | None:
        """Judge the readings (higher means worse) of one measure; None without two finite ones in a family.

        A family in which fewer than two models have a finite reading takes no part.
        """
        return self.scores([readings])[0]

    @one_blas_thread
    def scores(self, measures: Sequence[Mapping[str, float]]) -> list[PracticalScore | None]:
        """The same of several: one pass over the resamples serves them all."""
        slices = {key: self._resample(key, measures) for key in self.slices}
        return [self._score(one, place, slices) for place, one in enumerate(measures)]

    def _resample(self, key: tuple[str, str], measures: Sequence[Mapping[str, float]]) -> _Resampled:
        slice_, models = self.slices[key], self.models[key[0]]
        read = np.array([[self._judged(one, model) for model in models] for one in measures])
        first, second = slice_.pairs
        # A pair without a reading claims nothing. Whole numbers this small are exact in single precision.
        claimed = np.nan_to_num(np.sign(read[:, first] - read[:, second])).astype(np.float32)
        finite = np.isfinite(read)
        claimed[~(finite[:, first] & finite[:, second])] = 0
        kept = finite.sum(axis=1) * (finite.sum(axis=1) - 1) // 2
        errors, ends = {}, {}
        for statistic, signs in slice_.resampled_signs.items():
            agreed = (signs.astype(np.float32) @ claimed.T).astype(np.float64)
            # Halves add up exactly: the mean over pairs of ½ (1 − sgn·sgn), pair by pair or not.
            errors[statistic] = np.ascontiguousarray((0.5 * (kept - agreed) / np.maximum(kept, 1)).T)
            ends[statistic] = np.quantile(errors[statistic], [0.025, 0.975], axis=1)
        return _Resampled(read, errors, ends)

    def _score(
        self, readings: Mapping[str, float], place: int, slices: Mapping[tuple[str, str], _Resampled]
    ) -> PracticalScore | None:
        parts: list[Part] = []
        headlines: list[Array] = []
        worst: list[WorstPair] = []
        pairs = wrong = 0
        apart: list[float] = []
        alike: list[float] = []
        for (family, name), slice_ in self.slices.items():
            models, drawn = self.models[family], slices[family, name]
            c = drawn.readings[place]
            finite = np.isfinite(c)
            if finite.sum() < 2:
                continue
            kept = np.flatnonzero(finite[slice_.pairs[0]] & finite[slice_.pairs[1]])
            first, second = (rows[kept] for rows in slice_.pairs)
            pairs += len(first)
            claimed = np.sign(c[first] - c[second])
            for statistic in STATISTICS:
                difference = slice_.difference(statistic)[kept]
                low, high = drawn.ends[statistic][:, place]
                parts.append(
                    _part((family, name, statistic), claimed, difference, (low, high), slice_.images)
                )
                if statistic == HEADLINE:
                    headlines.append(drawn.errors[statistic][place])
                    errors = _errors(claimed, difference)
                    same = self._same_backbone(models, first, second)
                    apart += [float(errors[~same].mean())] if (~same).any() else []
                    alike += [float(errors[same].mean())] if same.any() else []
            found, number = _wrong_pairs(family, name, models, c, slice_, kept)
            worst, wrong = worst + found, wrong + number
        if not parts:
            return None
        chosen = [part for part in parts if part.statistic == HEADLINE]
        resampled = np.mean(headlines, axis=0)
        low, high = np.quantile(resampled, [0.025, 0.975])
        aware = [part.noise_aware for part in chosen if part.noise_aware is not None]
        everyone = [model for models in self.models.values() for model in models]
        several = bool(self.backbones)
        return PracticalScore(
            value=float(np.mean([part.value for part in chosen])),
            low=float(low),
            high=float(high),
            noise_aware=float(np.mean(aware)) if aware else None,
            pairs=pairs // len(SLICES),
            dropped=sum(
                not np.isfinite(readings.get(model, np.nan))
                for model in everyone
                if model not in self.unconverged
            ),
            parts=parts,
            worst=sorted(worst, key=lambda pair: -pair.certainty)[:_MOST_WRONG],
            wrong=wrong,
            resampled=resampled,
            across_sizes=float(np.mean(apart)) if several and apart else None,
            equal_size=float(np.mean(alike)) if several and alike else None,
        )

    def _judged(self, readings: Mapping[str, float], model: str) -> float:
        return np.nan if model in self.unconverged else readings.get(model, np.nan)

    def _same_backbone(
        self, models: Sequence[str], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """(pairs,) whether both are adaptations of one backbone."""
        own = np.array([self.backbones.get(model, model) for model in models])
        return np.asarray(own[first] == own[second])

    def resolved(self) -> dict[tuple[str, str], float]:
        """Share of model pairs, per family and slice, that differ by more than the Monte-Carlo noise.

        The noise of a difference of mean errors is 1.96 standard deviations of its bootstrap.
        """
        shares = {}
        for key, slice_ in self.slices.items():
            judged = np.array([model not in self.unconverged for model in self.models[key[0]]])
            kept = judged[slice_.pairs[0]] & judged[slice_.pairs[1]]
            apart = np.abs(slice_.difference())[kept] > 1.96 * slice_.noise[kept]
            shares[key] = float(np.mean(apart)) if len(apart) else float("nan")
        return shares

    def known(self) -> dict[str, JudgedModel]:
        """Model to its family, weights and marginals."""
        return {
            model: JudgedModel(
                family, self.weights[model], *(self._errors(family, name, place) for name in SLICES)
            )
            for family, models in self.models.items()
            for place, model in enumerate(models)
        }

    def _errors(self, family: str, name: str, place: int) -> SliceErrors:
        truth = self.slices[family, name].truth
        return SliceErrors(*(float(truth[statistic][place]) for statistic in STATISTICS))


def _errors(claimed: Array, difference: Array) -> Array:
    """½ (1 − sgn(dC)·sgn(dd)) of each pair."""
    return np.asarray(0.5 * (1 - claimed * np.sign(difference)))


def _part(
    where: tuple[str, str, str], claimed: Array, difference: Array, ends: tuple[float, float], images: int
) -> Part:
    errors = _errors(claimed, difference)
    sureness = pair_weights(difference, images)
    total = float(sureness.sum())
    family, name, statistic = where
    return Part(
        family=family,
        slice=name,
        statistic=statistic,
        value=float(errors.mean()),
        low=float(ends[0]),
        high=float(ends[1]),
        noise_aware=float((sureness * errors).sum()) / total if total > 0 else None,
        pairs=len(errors),
        sure_pairs=int((sureness > 0).sum()),
        ties=int((claimed == 0).sum()),
    )


def _wrong_pairs(
    family: str, name: str, models: Sequence[str], c: Array, slice_: Slice, kept: NDArray[np.int64]
) -> tuple[list[WorstPair], int]:
    """The surest of them, of the pairs `kept`, and how many there are."""
    first, second = (rows[kept] for rows in slice_.pairs)
    difference, noise = slice_.difference()[kept], slice_.noise[kept]
    wrong = np.flatnonzero(np.sign(difference) * np.sign(c[first] - c[second]) < 0)
    certainty = np.abs(difference) / np.maximum(noise, 1e-12)
    surest = wrong[np.argsort(-certainty[wrong], kind="stable")][:_MOST_WRONG]
    d = slice_.truth[HEADLINE]
    pairs = []
    for i in np.sort(surest):
        better, worse = (first[i], second[i]) if difference[i] < 0 else (second[i], first[i])
        pairs.append(
            WorstPair(
                family=family,
                slice=name,
                better=models[better],
                worse=models[worse],
                error_better=float(d[better]),
                error_worse=float(d[worse]),
                reading_better=float(c[better]),
                reading_worse=float(c[worse]),
                certainty=float(certainty[i]),
            )
        )
    return pairs, len(wrong)
