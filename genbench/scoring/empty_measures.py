"""Measures that say nothing, and measures that say a known amount: what a board's answers are tested with.

Six kinds of empty measures (SPEC.md 6), each with the questions that it must fail. A *random function* is a
sum of cosines with random frequencies, phases and weights, smooth on the scale of its arguments' spread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.known_networks import KnownNetworks

__all__ = ["EMPTY", "EmptyKind", "random_function", "signal"]

Floats = NDArray[np.float64]

_WAVES = 8
_SMALLEST_LOSS = 1e-12


@dataclass(frozen=True)
class EmptyKind:
    """One way to say nothing."""

    name: str
    must_fail: tuple[str, ...]
    make: Callable[[KnownNetworks, int, np.random.Generator], Floats | None]
    """(networks, measures) readings; None where these networks have no such thing."""


def random_function(arguments: Floats, count: int, generator: np.random.Generator) -> Floats:
    """(networks, count) random functions of (networks, arguments), which are standardised first."""
    spread = arguments.std(axis=0)
    scaled = (arguments - arguments.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    frequencies = generator.normal(size=(scaled.shape[1], _WAVES * count))
    phases = generator.uniform(0, 2 * np.pi, size=_WAVES * count)
    waves = np.cos(scaled @ frequencies + phases).reshape(len(scaled), count, _WAVES)
    return np.asarray((waves * generator.normal(size=(count, _WAVES))).sum(axis=2))


def _random(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats:
    return generator.normal(size=(len(known), count))


def _noisy(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats:
    # The mean of a few samples, with an error of its own for each network.
    error = np.exp(generator.normal(size=(len(known), count)))
    return _random(known, count, generator) + error * generator.normal(size=(len(known), count))


def _of_size(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats | None:
    if known.weights is None:
        return None
    # Equal counts give equal bits.
    sizes, place = np.unique(known.weights, return_inverse=True)
    return random_function(np.log(sizes)[:, None], count, generator)[place.reshape(-1)]


def _of_architecture(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats | None:
    if known.architecture is None:
        return None
    return generator.normal(size=(int(known.architecture.max()) + 1, count))[known.architecture]


def _of_fit(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats | None:
    if known.training_loss is None or not np.isfinite(known.training_loss).all():
        return None
    arguments = [np.log(np.maximum(known.training_loss, _SMALLEST_LOSS))]
    if known.training_error is not None and np.ptp(known.training_error) > 0:
        arguments.append(known.training_error)
    return random_function(np.column_stack(arguments), count, generator)


def _of_settings(known: KnownNetworks, count: int, generator: np.random.Generator) -> Floats | None:
    from scipy.stats import rankdata  # slow to load, and few need it

    places = [
        rankdata([str(v) for v in values], method="dense")
        if any(isinstance(v, str) for v in values)
        else rankdata(np.array(values, dtype=np.float64), method="dense")
        for values in known.settings.values()
        if len(set(values)) > 1
    ]
    if not places:
        return None
    distinct, place = np.unique(np.column_stack(places), axis=0, return_inverse=True)
    return random_function(distinct, count, generator)[place.reshape(-1)]


EMPTY = (
    EmptyKind("random", ("chance", "size", "fit", "settings"), _random),
    EmptyKind("random with noise", ("chance", "size", "fit", "settings"), _noisy),
    EmptyKind("function of weight count", ("size", "fit", "settings"), _of_size),
    EmptyKind("random per architecture", ("size", "fit", "settings"), _of_architecture),
    EmptyKind("function of training fit", ("fit",), _of_fit),
    EmptyKind("function of settings", ("settings",), _of_settings),
)


def signal(known: KnownNetworks, noise: Floats, generator: np.random.Generator) -> Floats:
    """(networks, measures) the truth with noise of a known size: half of its variance belongs to clusters.

    The truth enters as the normal score of its rank, a mean over slices, so that `noise` 0 orders networks as
    well as one number can and a large one not at all.

    Parameters
    ----------
    noise : (measures,) standard deviations.
    """
    from scipy.stats import norm, rankdata  # slow to load, and few need it

    count, networks = len(noise), len(known)
    scores = norm.ppf((rankdata(known.truths, axis=1) - 0.5) / networks).mean(axis=0)
    shared = generator.normal(size=(int(known.cluster.max()) + 1, count))[known.cluster]
    own = generator.normal(size=(networks, count))
    return np.asarray(scores[:, None] + noise * np.sqrt(0.5) * (shared + own))
