"""Calibration: can the answers of a board be trusted (SPEC.md 6)?

Empty measures show how often a question is passed by luck, synthetic measures of known sign-error whether
intervals cover it, and pairs of them how small a difference the board tells apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.blas import one_blas_thread
from genbench.scoring.bootstrap import RESAMPLES
from genbench.scoring.empty_measures import EMPTY, signal
from genbench.scoring.intervals import cluster_intervals, measured_spread, pair_p
from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.permutations import PERMUTATIONS
from genbench.scoring.questions import QUESTIONS, Question, ask
from genbench.scoring.resample_networks import Draws, draw_networks
from genbench.scoring.verdicts import LEVEL

__all__ = ["Calibration", "Coverage", "FalsePasses", "Power", "calibrate"]

Floats = NDArray[np.float64]

_AT_ONCE = 200
_BASE = 0.25
"""Sign-error of the better measure of a pair, or the best that is possible here plus a little."""
_DIFFERENCES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)
_POWER = 0.8
_NOISES = np.concatenate([[0.0], np.geomspace(0.05, 20.0, 24)])
_KNOWN_FROM = 400
"""Draws behind the known sign-error of a noise."""


@dataclass(frozen=True)
class FalsePasses:
    """How often empty measures of one kind pass a question that they must fail, at the nominal 5 %."""

    empty: str
    """The kind, as in `EMPTY`."""
    question: str
    share: float | None
    """None where it cannot be asked, or there are no such measures here."""
    measures: int


@dataclass(frozen=True)
class Coverage:
    """How often the 95 % interval of measures with a known headline sign-error holds it."""

    sign_error: float
    share: float
    measures: int


@dataclass(frozen=True)
class Power:
    """How often two measures are told apart whose sign-errors differ by so much, in a single test at 5 %."""

    difference: float
    share: float
    pairs: int


@dataclass(frozen=True)
class Calibration:
    """What the page of a board says of its own answers."""

    networks: int
    clusters: int
    false_passes: list[FalsePasses]
    coverage: list[Coverage]
    power: list[Power]
    base: float | None
    """Sign-error of the better measure of each pair behind `power`."""
    smallest_difference: float | None
    """Told apart four times in five; None if no difference here is."""
    cannot_ask: dict[str, str]
    covered: float | None
    """Share of all intervals that hold their sign-error."""


@one_blas_thread
def calibrate(
    known: KnownNetworks,
    measures: int = 1000,
    *,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Calibration:
    """Calibrate the questions about these networks.

    Parameters
    ----------
    measures : of each kind; and of synthetic ones in all, and pairs of them for each difference.
    """
    generator = np.random.default_rng(seed)
    asked = ask(known)
    cannot = {name: question for name, question in asked.items() if isinstance(question, str)}
    passes = _false_passes(known, measures, permutations, generator)
    coverage: list[Coverage] = []
    power: list[Power] = []
    base = smallest = None
    headline = asked["chance"]
    if not isinstance(headline, str):
        draws = draw_networks(known.cluster, known.family, resamples, seed)
        errors = _known_errors(known, generator)
        coverage = _coverage(known, headline, errors, measures, draws, generator)
        base = max(_BASE, float(errors[0]) + 0.05)
        power = _power(known, headline, errors, base, measures, generator)
        smallest = _smallest(power)
    clusters = len(np.unique(known.cluster))
    return Calibration(
        len(known), clusters, passes, coverage, power, base, smallest, cannot, _covered(coverage)
    )


def _covered(coverage: Sequence[Coverage]) -> float | None:
    total = sum(one.measures for one in coverage)
    return sum(one.share * one.measures for one in coverage) / total if total else None


def _false_passes(
    known: KnownNetworks, measures: int, permutations: int, generator: np.random.Generator
) -> list[FalsePasses]:
    asked = ask(known)
    found = []
    for empty in EMPTY:
        readings = empty.make(known, measures, generator)
        for name in QUESTIONS:
            question = asked[name]
            if name not in empty.must_fail:
                continue
            if readings is None or isinstance(question, str):
                found.append(FalsePasses(empty.name, name, None, 0))
                continue
            p = question.p(question.entering(readings), permutations)
            found.append(FalsePasses(empty.name, name, float(np.mean(p <= LEVEL)), measures))
    return found


def _known_errors(known: KnownNetworks, generator: np.random.Generator) -> Floats:
    """(noises,) the sign-error that measures with a noise of `_NOISES` have on average."""
    found = []
    for noise in _NOISES:
        drawn = signal(known, np.full(_KNOWN_FROM, noise), generator)
        found.append(known.headline.sign_errors(drawn).mean())
    return np.maximum.accumulate(np.array(found))


def _noise_for(errors: Floats, wanted: Sequence[float] | Floats) -> Floats:
    """Noises with which a measure has these sign-errors, between those that were tried."""
    return np.asarray(np.interp(wanted, errors, _NOISES))


def _coverage(
    known: KnownNetworks,
    question: Question,
    errors: Floats,
    measures: int,
    draws: Draws,
    generator: np.random.Generator,
) -> list[Coverage]:
    """At sign-errors from near the best that is possible to a coin."""
    levels = np.linspace(errors[0] + 0.1 * (0.5 - errors[0]), 0.48, 8)
    each = max(1, measures // len(levels))
    found = []
    for noise in _noise_for(errors, levels):
        # What the noise gives exactly, not what was asked for.
        exact = known.headline.sign_errors(signal(known, np.full(4 * _KNOWN_FROM, noise), generator)).mean()
        inside = 0
        for start in range(0, each, _AT_ONCE):
            readings = signal(known, np.full(min(_AT_ONCE, each - start), noise), generator)
            low, high, _ = cluster_intervals(question, known, readings, draws)
            inside += int(((low <= exact) & (exact <= high)).sum())
        found.append(Coverage(float(exact), inside / each, each))
    return found


def _power(
    known: KnownNetworks,
    question: Question,
    errors: Floats,
    base: float,
    measures: int,
    generator: np.random.Generator,
) -> list[Power]:
    (better,) = _noise_for(errors, [base])
    found = []
    for difference in _DIFFERENCES:
        (worse,) = _noise_for(errors, [base + difference])
        told = 0
        for start in range(0, measures, _AT_ONCE):
            count = min(_AT_ONCE, measures - start)
            pair = [signal(known, np.full(count, noise), generator) for noise in (better, worse)]
            values = [known.headline.sign_errors(one) for one in pair]
            p = pair_p(values, [measured_spread(question, known, one) for one in pair])
            # Two that are the same are told apart falsely whichever comes out better.
            told += int(((p <= LEVEL) & ((values[0] < values[1]) | (difference == 0))).sum())
        found.append(Power(difference, told / measures, measures))
    return found


def _smallest(power: Sequence[Power]) -> float | None:
    """The difference with a power of .8, linear between those that were tried."""
    before = power[0]
    for one in power[1:]:
        if one.share >= _POWER:
            along = (_POWER - before.share) / max(one.share - before.share, 1e-9)
            return before.difference + along * (one.difference - before.difference)
        before = one
    return None
