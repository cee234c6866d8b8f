"""Robust sign-error: a measure judged in the environment where it fails worst (001 Sec. 4–6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError
from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, ordered_quantile
from genbench.scoring.environments import (
    Environments,
    Sums,
    find_environments,
    point_sums,
    pool_environments,
    resampled_sums,
)
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.progress import Tick, part_of, quiet
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MIN_N_EFF", "Family", "robust_sign_error", "sign_error_environments"]

Family = Literal["strict", "pooled"]
MIN_N_EFF = 12.0
STATISTICS = ("mean", "median", "p90", "max")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def statistics_over(errors: Floats) -> Floats:
    """(4, …) mean, median, 90th percentile and maximum over the last axis, NaN left out."""
    ordered = np.sort(np.moveaxis(errors, -1, 0), axis=0)
    present = (~np.isnan(ordered)).sum(axis=0)
    total = np.where(np.isnan(ordered), 0.0, ordered).sum(axis=0)
    mean = np.divide(total, present, out=np.full(total.shape, np.nan), where=present > 0)
    quantiles = [ordered_quantile(ordered, share) for share in (0.5, 0.9, 1.0)]
    return np.stack([mean, *quantiles])


def _check(networks: NetworkTable, noise_filter: bool) -> None:
    if noise_filter and networks.test_size is None:
        raise UserError(
            f"{networks.source}: no column 'test_size', which the noise filter of the sign-error needs; "
            "give --test-size N or use --no-noise-filter"
        )


def robust_sign_error(
    networks: NetworkTable,
    *,
    target: str = "",
    family: Family = "strict",
    noise_filter: bool = True,
    min_n_eff: float = MIN_N_EFF,
    resamples: int = RESAMPLES,
    seed: int = 0,
    tick: Tick = quiet,
) -> pd.DataFrame:
    """Sign-error of every measure over environments, per hyperparameter and overall (001 Eq. 4–8).

        n_eff = (Σ kappa)² / Σ kappa²        SE = Σ kappa·½(1 − sgn(dC)·sgn(dG)) / Σ kappa

    The sums run over all pairs of a run of one combo and a run of the other. Environments with n_eff below
    `min_n_eff` are dropped. `max` over environments is the robust sign-error.

    Parameters
    ----------
    family : `strict`, an environment is a pair of combos that differ in one hyperparameter; `pooled`, a pair
        of values of one hyperparameter, whatever the others are (001 D.3).
    noise_filter : False gives every pair the weight 1.

    Returns
    -------
    A tidy table; `part` is a hyperparameter or `all`, `statistic` one of mean, median, p90, max, `count` the
    environments kept and `available` all of them.
    """
    _check(networks, noise_filter)
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        found = find_environments(table)
        sums = point_sums(table, target, noise_filter, found)
        draws = _draws(table, found, resamples)
        share = len(table.measures) / len(networks.measures)
        drawn = None
        if draws:
            some = part_of(tick, share)
            drawn = resampled_sums(table, target, noise_filter, found, draws, seed, some)
        if family == "pooled":
            found, label = pool_environments(table, found)
            sums = sums.pooled(label, len(found))
            drawn = drawn and drawn.pooled(label, len(found))
        errors = sums.sign_errors(min_n_eff)
        for part, places in _parts(table, found):
            values = statistics_over(errors[:, places])
            low = high = np.full_like(values, np.nan)
            kept = int(np.isfinite(errors[:, places]).all(axis=0).sum())
            if drawn is not None and kept:
                low, high = _intervals(drawn, places[np.isfinite(errors[0, places])])
            for number, measure in enumerate(table.measures):
                rows += [
                    {
                        "measure": measure,
                        "target": target or next(iter(table.targets)),
                        "part": part,
                        "statistic": statistic,
                        "value": values[k, number],
                        "low": low[k, number] if kept else np.nan,
                        "high": high[k, number] if kept else np.nan,
                        "count": kept,
                        "available": len(places),
                        "rows": len(table),
                        "dropped": dropped,
                        "resamples": draws,
                        "note": ""
                        if kept
                        else f"no environment has {min_n_eff:g} effective pairs; needs more seeds",
                    }
                    for k, statistic in enumerate(STATISTICS)
                ]
    return tidy("sign_error", rows)


def _draws(networks: NetworkTable, found: Environments, resamples: int) -> int:
    pairs = float(len(found)) * float(networks.runs.max(initial=0)) ** 2
    return affordable(resamples, 8 * pairs) if len(found) else 0


def resampled_means(
    networks: NetworkTable, *, target: str = "", resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Floats]:
    """Measure to its mean sign-error over environments in every resample behind `robust_sign_error`.

    Measures with readings on the same rows are resampled alike, so their differences are paired.
    """
    means: dict[str, Floats] = {}
    for table, _ in networks.without_gaps():
        found = find_environments(table)
        draws = _draws(table, found, resamples)
        if not draws:
            continue
        kept = np.flatnonzero(np.isfinite(point_sums(table, target, True, found).sign_errors(MIN_N_EFF)[0]))
        drawn = resampled_sums(table, target, True, found, draws, seed)
        for measure, wrong in zip(table.measures, drawn.wrong, strict=True):
            some = Sums(wrong[:, kept].astype(np.float64), drawn.weight[:, kept], drawn.square[:, kept])
            if len(kept):
                means[measure] = np.nanmean(some.sign_errors(0.0), axis=-1)
    return means


def _intervals(drawn: Sums, places: Integers) -> tuple[Floats, Floats]:
    """(4, measures) lower and upper ends over the environments kept in the table itself.

    They are not chosen anew in each resample: copies of runs lower n_eff, so a resample would drop the noisy
    environments, and the interval would be that of an easier family. One measure at a time spares memory.
    """
    ends = []
    for wrong in drawn.wrong:
        some = Sums(wrong[:, places].astype(np.float64), drawn.weight[:, places], drawn.square[:, places])
        ends.append(interval(statistics_over(some.sign_errors(0.0)).T))
    low, high = (np.stack(end, axis=1) for end in zip(*ends, strict=True))
    return low, high


def _parts(networks: NetworkTable, found: Environments) -> Iterator[tuple[str, Integers]]:
    yield "all", np.arange(len(found))
    for axis in networks.varying:
        yield networks.hyperparameters[axis], np.flatnonzero(found.axis == axis)


def sign_error_environments(
    networks: NetworkTable,
    *,
    target: str = "",
    family: Family = "strict",
    noise_filter: bool = True,
    min_n_eff: float = MIN_N_EFF,
) -> pd.DataFrame:
    """The distribution behind `robust_sign_error`: one row per measure and environment kept.

    Columns `measure, hyperparameter, low_value, high_value, fixed, n_eff, sign_error`; sorted by sign-error,
    the first rows of a measure are the environments where it fails worst.
    """
    import pandas as pd

    _check(networks, noise_filter)
    frames: list[pd.DataFrame] = []
    for table, _ in networks.without_gaps():
        found = find_environments(table)
        sums = point_sums(table, target, noise_filter, found)
        if family == "pooled":
            found, label = pool_environments(table, found)
            sums = sums.pooled(label, len(found))
        errors, n_eff = sums.sign_errors(min_n_eff), sums.n_eff
        codes, varying = table.combo_codes, table.varying
        words = pd.DataFrame(
            {
                "hyperparameter": [table.hyperparameters[a] for a in found.axis],
                "low_value": _level_words(table, codes[found.first, found.axis], found.axis),
                "high_value": _level_words(table, codes[found.second, found.axis], found.axis),
                "fixed": [
                    "" if family == "pooled" else table.describe(codes[c], [i for i in varying if i != a])
                    for c, a in zip(found.first, found.axis, strict=True)
                ],
                "n_eff": n_eff,
            }
        )
        for number, measure in enumerate(table.measures):
            own = words.assign(measure=measure, sign_error=errors[number])
            frames.append(own[np.isfinite(errors[number])])
    columns = ["measure", "hyperparameter", "low_value", "high_value", "fixed", "n_eff", "sign_error"]
    if not frames:
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)[columns].sort_values(
        ["sign_error", "n_eff"], ascending=False, kind="stable", ignore_index=True
    )


def _level_words(networks: NetworkTable, levels: Integers, axes: Integers) -> list[str]:
    return [str(networks.levels[axis][level]) for axis, level in zip(axes, levels, strict=True)]
