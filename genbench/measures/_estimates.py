"""Means of samples with their standard errors, over draws and over the choice of training examples.

A reading is asked of the whole training set. Where a subset of n of its m examples was looked at, what they
leave open is a share 1 − n/m of the variance between samples of n (sampling without replacement): nothing, if
all were.

Losses and curvatures of examples are skewed: a few examples carry much, and a sample without them gives a
small value and a small error at once. So every error has a second term, what one more sample like the most
extreme one would change; it adds a tenth to the error of bell-shaped samples and up to a half to that of
skewed ones. Where that is not enough, `skewed` takes the error in logarithms.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.plugin.contract import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

__all__ = [
    "drawn_sum",
    "expected_largest",
    "jackknife",
    "jackknife_bias",
    "mean_by",
    "mean_of",
    "mean_over_examples",
    "mean_over_rows",
    "resampled",
    "skewed",
    "together",
]

_GROUPS = 32
"""Of examples that a jackknife leaves out one at a time."""


def together(*errors: float) -> float:
    """The standard error of independent errors."""
    return math.hypot(*errors)


def skewed(found: Estimate, span: float | None = None) -> Estimate:
    """The same with the error of a positive, skewed number: two errors up are two errors of its logarithm.

    `span`: the positive number that is skewed, if it is not the value itself.
    """
    size = float(found) if span is None else span
    error = found.standard_error
    if error is None or not size > 0:
        return found
    relative = min(error / size, _MOST_RELATIVE)
    wider = error * math.expm1(2 * relative) / (2 * relative) if relative > 0 else error
    return Estimate(found, standard_error=wider, samples=found.samples)


_MOST_RELATIVE = 0.75
"""Beyond it a number is not known at all, and its logarithm says no more."""


def mean_of(samples: Tensor, factor: float = 1.0) -> Estimate:
    """factor · mean of independent samples."""
    values, n = samples.cpu().double(), len(samples)
    mean = float(values.mean())
    error = together(float(values.std()) / math.sqrt(n), _extreme(values) / n) if n > 1 else None
    return Estimate(factor * mean, standard_error=None if error is None else abs(factor) * error, samples=n)


def mean_by(samples: Tensor, known: Tensor, mean_known: float) -> Estimate:
    """Mean of what the samples stand for, where a number is `known` of each and, in the mean, of all.

    The regression estimator (Cochran 1977, Eq. 7.4): mean x + b·(mean_known − mean c), b the slope of the
    samples x on c; its error is that of what c does not explain. No further than the samples reach.
    """
    values, by, n = samples.cpu().double(), known.cpu().double(), len(samples)
    centred = by - by.mean()
    square = float(centred.square().sum())
    if n < _REGRESSED or not square > 0:
        return mean_of(samples)
    slope = float(centred @ values) / square
    off = mean_known - float(by.mean())
    rest = values - values.mean() - slope * centred
    value = min(max(float(values.mean()) + slope * off, float(values.min())), float(values.max()))
    spread = float(rest.square().sum()) / (n - 2) * (1 / n + off**2 / square)
    return Estimate(value, standard_error=together(math.sqrt(spread), _extreme(rest) / n), samples=n)


_REGRESSED = 8
"""Samples at least for a slope."""


def _extreme(values: Tensor) -> float:
    """How far the value that is furthest from the mean is from it."""
    return float((values - values.mean()).abs().max())


def drawn_sum(value: float, shares: Tensor, chances: Tensor) -> Estimate:
    """A sum of shares of examples that were drawn with different chances, and what that leaves open.

    The value may hold more than the sum, if that is known. Nothing is open of those that were certain.
    """
    doubtful = chances < 1
    n, error = int(doubtful.sum()), 0.0
    if n:
        drawn = mean_of(shares[doubtful], factor=n).standard_error if n > 1 else float(shares[doubtful])
        error = abs(drawn or 0.0) * math.sqrt(float((1 - chances[doubtful]).mean()))
    return Estimate(value, standard_error=error, samples=len(chances))


def mean_over_examples(values: Tensor, m: int) -> Estimate:
    """Mean over some of m training examples."""
    found = mean_of(values)
    error = 0.0 if len(values) >= m else found.standard_error
    if error is not None:
        error *= math.sqrt(max(0.0, 1 - len(values) / m))
    return Estimate(found, standard_error=error, samples=len(values))


def jackknife(left_out: Tensor) -> float:
    """Standard error from values with one group of the data left out each."""
    groups = len(left_out)
    if groups < 2:
        return math.inf
    spread = float((left_out - left_out.mean()).square().sum()) * (groups - 1) / groups
    return together(math.sqrt(spread), _extreme(left_out))


def jackknife_bias(value: float, left_out: Tensor) -> float:
    """How far the value of a sample is off on average, from values with one of its groups left out each.

    (G − 1)·(mean of left_out − value), exact to first order in 1/n (Quenouille 1956); 0 of fewer than two
    groups, which cannot tell.
    """
    groups = len(left_out)
    return (groups - 1) * (float(left_out.mean()) - value) if groups > 1 else 0.0


def resampled(
    table: Tensor, statistic: Callable[[Tensor, Tensor], float], chances: Tensor, m: int
) -> Estimate:
    """statistic(table, weights) of a table (draws, examples), with its error over draws and examples of m.

    Examples were drawn with `chances`; a mean over all m is the sum of weights · value, weights = 1 / (m ·
    chance). Two jackknives: leaving out one draw, and leaving out one group of the examples that were not
    certain to be drawn.
    """
    table, chances = table.cpu().double(), chances.cpu().double()
    weights = 1 / (m * chances)
    count, doubtful = len(table), (chances < 1).nonzero()[:, 0]
    without = [statistic(torch.cat([table[:k], table[k + 1 :]]), weights) for k in range(count)]
    error = jackknife(table.new_tensor(without))
    if n := len(doubtful):
        groups = min(_GROUPS, n)
        left_out = []
        for group in doubtful.tensor_split(groups):
            others = weights.clone()
            others[doubtful] *= n / max(n - len(group), 1)
            others[group] = 0
            left_out.append(statistic(table, others))
        open_share = math.sqrt(float((1 - chances[doubtful]).mean()))
        error = together(error, open_share * jackknife(table.new_tensor(left_out)))
    return Estimate(statistic(table, weights), standard_error=error, samples=count)


def expected_largest(values: Tensor, size: int) -> float:
    """Expected largest of `size` values: its mean over all ways to choose them from `values`."""
    count = len(values)
    size = min(size, count)
    return float(values.cpu().double().sort().values @ _weights(count, size))


@cache
def _weights(count: int, size: int) -> Tensor:
    """In how large a share of all choices each value, in order of size, is the largest."""
    ways = torch.tensor([math.comb(k, size - 1) for k in range(count)], dtype=torch.float64, device="cpu")
    return ways / ways.sum()


def mean_over_rows(scores: Tensor, design: Mapping[str, Tensor], finest: float = 0.0) -> Estimate:
    """Mean over examples x of the mean score of the rows of x, of `Subject.response_curve` or `midpoints`.

    With r > 1 rows of each x the error is that of sampling in two stages, examples and then partners of each
    (Cochran 1977, Eq. 10.15): (1 − f1)·s1²/n + f1·(1 − f2)·s2²/(n·r), s1² between examples, s2² within. With
    one row of each it is s1²/n, whatever the share of the examples. `finest`: what a single answer changes;
    where not all pairs were seen the error is no smaller.
    """
    scores, example = scores.cpu().double(), design["example"].cpu()
    seen, partners = float(design["seen"]), float(design["partners"])
    n = int(example.max()) + 1
    counts = torch.bincount(example, minlength=n).double()
    means = torch.zeros_like(counts).index_add_(0, example, scores) / counts
    value = float(means.mean())
    if partners == 1:
        return Estimate(value, standard_error=0.0, samples=len(scores))
    if len(scores) == n:
        error = mean_of(means).standard_error or 0.0
    else:
        within = float((scores - means[example]).square().sum() / (len(scores) - n))
        between = (1 - seen) * float(means.var()) / n if n > 1 else 0.0
        error = math.sqrt(between + seen * (1 - partners) * within / len(scores))
        error = together(error, math.sqrt(1 - seen) * _extreme(means) / n)
    return Estimate(value, standard_error=together(error, finest), samples=len(scores))
