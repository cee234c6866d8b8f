"""Baselines of a board: what luck, size, training loss and settings reach alone (SPEC.md 6)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from genbench.scoring.adjust import additive_effects
from genbench.scoring.bootstrap import RESAMPLES
from genbench.scoring.known_networks import KnownNetworks, numbered
from genbench.scoring.permutations import null_sign_errors, tie_pattern
from genbench.scoring.verdicts import LEVEL, headlines, holm

__all__ = ["Baseline", "baseline_readings", "judge_baselines", "settings_effect"]

Floats = NDArray[np.float64]

_FOLDS = 5
_DEALS = 10
_DRAWS = 1000


class Baseline(Struct, frozen=True, omit_defaults=True):
    """The headline sign-error of a baseline, and which measures are better."""

    sign_error: float
    low: float
    high: float
    beaten_by: list[str]
    """Measures with a lower sign-error."""
    surely_beaten_by: list[str]
    """Of these, those that are better at 5 % by a paired cluster test, after Holm over the measures."""
    about: str
    band: list[float] | None = None
    """Of a random baseline: 5 % and 95 % of 1,000 draws."""


_ABOUT = {
    "baseline_constant": "the same number for every network",
    "baseline_random": "a random number per network, one draw; the band is 5 to 95 % of 1,000",
    "baseline_size": "more weights, worse",
    "baseline_size_reversed": "fewer weights, worse",
    "baseline_training_loss": "more training loss, worse",
    "baseline_settings": "the additive effect of the settings on the truth of other networks, cross-fitted; "
    "the one baseline that knows truths",
}


def baseline_readings(known: KnownNetworks, seed: int = 0) -> dict[str, Floats]:
    """Baseline to its readings, higher means worse; only those that these networks allow."""
    found = {
        "baseline_constant": np.zeros(len(known)),
        "baseline_random": np.random.default_rng(seed).normal(size=len(known)),
    }
    if known.weights is not None:
        found |= {"baseline_size": known.weights, "baseline_size_reversed": -known.weights}
    if known.training_loss is not None:
        found["baseline_training_loss"] = known.training_loss
    effect = settings_effect(known, seed)
    if effect is not None:
        found["baseline_settings"] = effect
    return found


def settings_effect(known: KnownNetworks, seed: int = 0) -> Floats | None:
    """(networks,) the truth that the settings of a network let expect; None without settings that vary.

    A linear model with additive effects of the settings, fitted within a family to the mean truth over
    slices; combos are dealt into five folds, and each fold is predicted by a model of the other four, so that
    no network is judged by a model that saw it or another seed of its combo. The mean over ten deals.
    """
    if not any(len(set(values)) > 1 for values in known.settings.values()):
        return None
    truth = known.truths.mean(axis=0)
    combo = numbered(list(zip(*known.settings.values(), strict=True)))
    combos = int(combo.max()) + 1
    if combos < _FOLDS:
        return None
    generator = np.random.default_rng(seed)
    folds = [(generator.permutation(combos) % _FOLDS)[combo] for _ in range(_DEALS)]
    effects = np.column_stack([np.ones(len(known)), additive_effects(known.settings)])
    expected = np.zeros(len(known))
    for family in np.unique(known.family):
        own = known.family == family
        for fold, number in product(folds, range(_FOLDS)):
            fitted, judged = own & (fold != number), own & (fold == number)
            slopes, *_ = np.linalg.lstsq(effects[fitted], truth[fitted])
            expected[judged] += effects[judged] @ slopes / _DEALS
    # Predictions for two seeds of a combo are the same but for rounding, which must order nothing.
    return np.asarray(np.round(expected, 10))


def judge_baselines(
    known: KnownNetworks,
    readings: Mapping[str, ArrayLike],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Baseline]:
    """Baselines beside measures.

    Parameters
    ----------
    readings : of the measures, as `judge` takes them.
    """
    if not len(known.headline):
        return {}
    baselines = baseline_readings(known, seed)
    # A measure may be called as a baseline is.
    together = {("measure", name): values for name, values in readings.items()}
    together |= {("baseline", name): values for name, values in baselines.items()}
    found = headlines(known, together, resamples=resamples, seed=seed)
    place = {key: number for number, key in enumerate(together)}
    measures = [name for name in readings if np.isfinite(found.values[place["measure", name]])]
    rows = [place["measure", name] for name in measures]
    result = {}
    for name in baselines:
        own = place["baseline", name]
        if not np.isfinite(found.values[own]):
            continue
        p = holm(found.paired[own, rows])
        below = found.values[rows] < found.values[own]
        result[name] = Baseline(
            float(found.values[own]),
            float(found.low[own]),
            float(found.high[own]),
            beaten_by=[measure for measure, better in zip(measures, below, strict=True) if better],
            surely_beaten_by=[
                measure
                for measure, better, chance in zip(measures, below, p, strict=True)
                if better and chance <= LEVEL
            ],
            about=_ABOUT[name],
            band=_band(known, seed) if name == "baseline_random" else None,
        )
    return result


def _band(known: KnownNetworks, seed: int) -> list[float]:
    """5 % and 95 % of the headline of random numbers: only their order within a family counts."""
    different = tie_pattern(np.arange(len(known), dtype=np.float64), known.family)
    (drawn,) = null_sign_errors(known.headline, [different], known.family, _DRAWS, seed)
    return [float(end) for end in np.quantile(drawn, [0.05, 0.95])]
