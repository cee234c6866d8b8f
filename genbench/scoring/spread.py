"""CMS and eCMS: how far a measure moves between runs of equal test error (000 Sec. 7, Algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError
from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities, quantile
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import ranges
from genbench.scoring.progress import Tick, quiet
from genbench.scoring.tidy import tidy
from genbench.scoring.weighted_median import weighted_medians

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DELTAS", "cms", "group_key"]

DELTAS = (0.01, 0.02, 0.05)
STATISTICS = ("CMS", "eCMS", "CMS_seed", "CMS_inter")
_DATASET = ("dataset", "data", "data_set")
_ARCHITECTURE = ("architecture", "arch", "model", "model_type", "network", "backbone")
# The pair budget K of Algorithms 1 and 2, here for resamples alone: values come from every pair.
_PAIR_BUDGET = 200_000
_RESAMPLES_AT_ONCE = 100
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]


def group_key(networks: NetworkTable, group_by: Sequence[str] = ()) -> tuple[int, ...]:
    """Places of the hyperparameters that make the groups; by default those of data set and architecture."""
    wanted = tuple(group_by) or networks.group_by
    for name in wanted:
        if name not in networks.hyperparameters:
            raise UserError(
                f"{networks.source}: no hyperparameter {name!r} to group by; "
                f"there are {', '.join(networks.hyperparameters)}"
            )
    names = wanted or tuple(n for n in networks.hyperparameters if n in (*_DATASET, *_ARCHITECTURE))
    return tuple(networks.hyperparameters.index(name) for name in names)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Runs of one group whose test errors are close."""

    first: Integers
    second: Integers
    seed_only: NDArray[np.bool_]
    """(pairs,) whether the two runs have the same hyperparameters."""


def _comparable_errors(networks: NetworkTable) -> tuple[Floats, float]:
    """Errors, and the factor that delta is to be multiplied with.

    With one test size they are counts of wrong images: as fractions, a hundredth of the pairs that are
    exactly delta apart would be lost to rounding.
    """
    if networks.test_error is None:
        raise UserError(
            f"{networks.source}: no column 'test_error', by which CMS finds runs of equal error; "
            "name yours with --test-error COLUMN"
        )
    size = networks.test_size
    if size is not None and np.ptp(size) == 0:
        return np.rint(networks.test_error * size[0]), float(size[0])
    return networks.test_error, 1.0


def _by_error(networks: NetworkTable, rows: Integers, delta: float) -> tuple[Integers, Integers]:
    """Rows in increasing order of their error, and how many of those after each one are close to it."""
    error, factor = _comparable_errors(networks)
    order = rows[np.argsort(error[rows], kind="stable")]
    ordered = error[order]
    # The slack is far below one image, and far above rounding.
    last = np.searchsorted(ordered, ordered + delta * factor + 1e-9 * max(1.0, factor), side="right")
    return order, last - np.arange(len(order)) - 1


def _close_pairs(networks: NetworkTable, rows: Integers, delta: float) -> _Pairs:
    order, close = _by_error(networks, rows, delta)
    place = np.arange(len(order))
    first, second = order[np.repeat(place, close)], order[ranges(place + 1, close)]
    return _Pairs(first, second, networks.combo[first] == networks.combo[second])


def _logarithms(networks: NetworkTable) -> Floats:
    """(rows, measures) log C; a column is NaN where C is not positive somewhere."""
    columns = []
    for place, name in enumerate(networks.measures):
        reading = -networks.readings[:, place] if name in networks.flipped else networks.readings[:, place]
        if name in networks.logarithms:
            columns.append(reading)
        elif (reading > 0).all():
            columns.append(np.log(reading))
        else:
            columns.append(np.full(len(reading), np.nan))
    return np.asfortranarray(np.stack(columns, axis=1))


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _four(spread: Floats, pairs: _Pairs) -> Floats:
    """CMS, eCMS and the two medians that eCMS is the difference of; NaN where there are no such pairs."""
    seed, inter = _median(spread[pairs.seed_only]), _median(spread[~pairs.seed_only])
    return np.array([_median(spread), np.maximum(0.0, inter - seed), seed, inter])


def _resampled(logarithms: Floats, pairs: _Pairs, drawn: Singles, generator: np.random.Generator) -> Floats:
    """(resamples, measures, 4) as `_four`, each pair counting the product of its runs' multiplicities."""
    result = np.full((len(drawn), logarithms.shape[1], 4), np.nan)
    kinds = []
    for chosen in (np.arange(len(pairs.first)), *map(np.flatnonzero, (pairs.seed_only, ~pairs.seed_only))):
        if len(chosen) > _PAIR_BUDGET:
            chosen = np.sort(generator.choice(chosen, _PAIR_BUDGET, replace=False))
        kinds.append((pairs.first[chosen], pairs.second[chosen]))
    positive = [k for k in range(logarithms.shape[1]) if not np.isnan(logarithms[:, k]).any()]
    for start in range(0, len(drawn), _RESAMPLES_AT_ONCE):
        part = slice(start, start + _RESAMPLES_AT_ONCE)
        by_run = np.ascontiguousarray(drawn[part].T)
        medians = np.full((3, by_run.shape[1], logarithms.shape[1]), np.nan)
        for kind, (first, second) in enumerate(kinds):
            weights = by_run[first] * by_run[second]
            for place in positive:
                spread = np.abs(logarithms[first, place] - logarithms[second, place])
                medians[kind, :, place] = weighted_medians(spread, weights)
        overall, seed, inter = medians
        result[part] = np.stack([overall, np.maximum(0.0, inter - seed), seed, inter], axis=-1)
    return result


def cms(
    networks: NetworkTable,
    *,
    deltas: Sequence[float] = DELTAS,
    group_by: Sequence[str] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
    tick: Tick = quiet,
) -> pd.DataFrame:
    """Conditional measure spread and its seed-adjusted excess (000 Eq. 13–20).

        CMS  = median of |log C_r − log C_s| over pairs of runs with |err_r − err_s| ≤ delta
        eCMS = max(0, median over pairs of different hyperparameters − median over pairs of equal ones)

    Medians over groups of runs of one data set and architecture. A measure that is not positive has no
    logarithm and no CMS; one named `log_…` enters as it is.

    Returns
    -------
    A tidy table; `part` is `delta=…`, or `delta=…, group` for one group; `statistic` one of CMS, eCMS,
    CMS_seed and CMS_inter; `count` the groups that have it (for one group, its pairs) of those `available`.
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        key = group_key(table, group_by)
        values, label = np.unique(table.codes[:, list(key)], axis=0, return_inverse=True)
        names = [table.describe(_spread(table, value, key), key) or "all runs" for value in values]
        members = [np.flatnonzero(label.reshape(-1) == g) for g in range(len(values))]
        logarithms = _logarithms(table)
        close = [int(_by_error(table, m, d)[1].sum()) for d in deltas for m in members]
        pairs = sum(min(count, _PAIR_BUDGET) for count in close)
        draws = affordable(resamples, 30.0 * pairs)
        drawn = multiplicities(table, draws, seed)
        generator = np.random.default_rng(seed)
        for delta in deltas:
            value, resampled, counts = [], [], []
            for rows_of_group in members:
                group = _close_pairs(table, rows_of_group, delta)
                value.append(
                    [_four(np.abs(log[group.first] - log[group.second]), group) for log in logarithms.T]
                )
                resampled.append(_resampled(logarithms, group, drawn, generator))
                tick(len(table.measures) / len(networks.measures) / len(deltas) / len(members))
                seed_pairs = int(group.seed_only.sum())
                counts.append([len(group.first), len(group.first), seed_pairs, len(group.first) - seed_pairs])
            by_group, by_draw = np.array(value), np.stack(resampled)
            rows += _rows(
                table, dropped, draws, f"delta={delta:g}", names, by_group, by_draw, np.array(counts)
            )
    return tidy("cms", rows)


def _spread(networks: NetworkTable, value: Integers, key: tuple[int, ...]) -> Integers:
    codes = np.zeros(len(networks.hyperparameters), dtype=np.int64)
    codes[list(key)] = value
    return codes


def _rows(
    networks: NetworkTable,
    dropped: int,
    draws: int,
    delta: str,
    names: list[str],
    by_group: Floats,
    by_draw: Floats,
    pairs: Integers,
) -> list[dict[str, Any]]:
    """Rows of one delta: by_group (groups, measures, 4), by_draw (groups, resamples, measures, 4)."""
    rows: list[dict[str, Any]] = []
    low, high = interval(np.moveaxis(by_draw, 1, 0))
    middle, middle_low, middle_high = _over_groups(by_group, by_draw)
    for k, measure in enumerate(networks.measures):
        positive = bool(np.isfinite(by_group[:, k]).any())
        common = {
            "measure": measure,
            "rows": len(networks),
            "dropped": dropped,
            "resamples": draws,
            "target": "test_error",
        }
        for s, statistic in enumerate(STATISTICS):
            defined = int(np.isfinite(by_group[:, k, s]).sum())
            undefined = (
                "a reading is not positive" if not positive and pairs.any() else "no pairs of equal error"
            )
            rows.append(
                {
                    **common,
                    "part": delta,
                    "statistic": statistic,
                    "value": middle[k, s],
                    "low": middle_low[k, s],
                    "high": middle_high[k, s],
                    "count": defined,
                    "available": len(names),
                    "note": "" if defined else f"undefined: {undefined}",
                }
            )
            rows += [
                {
                    **common,
                    "part": f"{delta}, {name}",
                    "statistic": statistic,
                    "value": by_group[g, k, s],
                    "low": low[g, k, s],
                    "high": high[g, k, s],
                    "count": int(pairs[g, s]),
                    "available": int(pairs[g, 0]),
                }
                for g, name in enumerate(names)
            ]
    return rows


def _over_groups(by_group: Floats, by_draw: Floats) -> tuple[Floats, Floats, Floats]:
    """Medians over the groups that are defined, with their intervals (000 Eq. 19, 20)."""
    low, high = interval(quantile(by_draw, 0.5))
    return quantile(by_group, 0.5), low, high
