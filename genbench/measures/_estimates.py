"""Means of samples with their standard errors, over draws and over the choice of training examples.

A reading is asked of the whole training set. Where a subset of n of its m examples was looked at, what they leave
open is a share 1 − n/m of the variance between samples of n (sampling without replacement): nothing, if all
were.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.plugin.contract import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

__all__ = [
    "expected_largest",
    "jackknife",
    "mean_of",
    "mean_over_examples",
    "mean_over_rows",
    "resampled",
    "together",
]

_GROUPS = 32
"""Of examples that a jackknife leaves out one at a time."""


def together(*errors: float) -> float:
    """The standard error of independent errors."""
    return math.hypot(*errors)


def mean_of(samples: Tensor, factor: float = 1.0) -> Estimate:
    """factor · mean of independent samples."""
    n = len(samples)
    error = float(samples.double().std()) / math.sqrt(n) if n > 1 else None
    return Estimate(
        factor * float(samples.double().mean()),
        standard_error=None if error is None else abs(factor) * error,
        samples=n,
    )


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
    return math.sqrt(float((left_out - left_out.mean()).square().sum()) * (groups - 1) / groups)


def resampled(
    table: Tensor, statistic: Callable[[Tensor], float], m: int
) -> Estimate:
    """statistic(table) of a table (draws, examples), with its error over draws and over examples of m.

    Two jackknives: leaving out one draw, and leaving out one group of examples.
    """
    count, n = table.shape
    over_draws = torch.tensor([statistic(torch.cat([table[:k], table[k + 1 :]])) for k in range(count)])
    error = jackknife(over_draws.double())
    if n < m:
        groups = torch.arange(n) * min(_GROUPS, n) // n
        over_examples = torch.tensor([statistic(table[:, groups != g]) for g in range(min(_GROUPS, n))])
        error = together(error, math.sqrt(1 - n / m) * jackknife(over_examples.double()))
    return Estimate(statistic(table), standard_error=error, samples=count)


def expected_largest(values: Tensor, size: int) -> float:
    """Expected largest of `size` values: its mean over all ways to choose them from `values`."""
    count = len(values)
    size = min(size, count)
    ways = torch.tensor([math.comb(k, size - 1) for k in range(count)], dtype=torch.float64)
    return float((values.double().sort().values * ways).sum() / ways.sum())


def mean_over_rows(scores: Tensor, design: Mapping[str, Tensor], finest: float = 0.0) -> Estimate:
    """Mean over examples x of the mean score of the rows of x, of `Subject.response_curve` or `midpoints`.

    The error is that of sampling in two stages, examples and then partners of each (Cochran 1977, Eq. 10.15):
    (1 − f1)·s1²/n + f1·(1 − f2)·s2²/(n·r), s1² between examples, s2² within. `finest`: what a single answer
    changes; where not all pairs were seen the error is no smaller.
    """
    example, seen, partners = design["example"], float(design["seen"]), float(design["partners"])
    n = int(example.max()) + 1
    counts = torch.bincount(example, minlength=n).double()
    means = torch.zeros(n, dtype=torch.float64).index_add_(0, example, scores.double()) / counts
    value = float(means.mean())
    if partners == 1:
        return Estimate(value, standard_error=0.0, samples=len(scores))
    within = float((scores.double() - means[example]).square().sum() / max(len(scores) - n, 1))
    between = float(means.var()) if n > 1 else 0.0
    variance = (1 - seen) * between / n + seen * (1 - partners) * within / len(scores)
    return Estimate(value, standard_error=together(math.sqrt(variance), finest), samples=len(scores))
