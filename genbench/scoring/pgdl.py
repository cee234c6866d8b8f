"""The score of the competition "Predicting Generalization in Deep Learning" (003 A.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities
from genbench.scoring.conditioning import ConditioningSet, conditioning_sets, entropy_sum
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pgdl_score"]

Floats = NDArray[np.float64]
# Means over seeds of equal values differ in the last bits; rounding makes them equal again.
_DECIMALS = 12
_CELLS = 2**22


def _ratio(both: Floats, up: Floats, larger: Floats) -> Floats:
    """(resamples,) mean over groups of I(V_C; V_G) over that of H(V_G); NaN where the latter is 0.

    Parameters
    ----------
    both, up, larger : (resamples, values, values) shares of pairs of each group with V_C = V_G = 1, V_C = 1
        and V_G = 1.
    """
    cells = (both, up - both, larger - both, 1 - up - larger + both)
    joint_entropy = -sum(entropy_sum(np.maximum(p, 0.0)) for p in cells)
    measure_entropy, gap_entropy = (-(entropy_sum(p) + entropy_sum(1 - p)) for p in (up, larger))
    information = (measure_entropy + gap_entropy - joint_entropy).mean(axis=(-2, -1))
    entropy = gap_entropy.mean(axis=(-2, -1))
    ratio = np.divide(information, entropy, out=np.full_like(entropy, np.nan), where=entropy > 1e-12)
    return np.asarray(np.clip(ratio, 0.0, 1.0))


def _all_ratios(
    networks: NetworkTable, gap: Floats, drawn: NDArray[np.float32], sets: list[ConditioningSet]
) -> Floats:
    """(resamples, measures, sets)"""

    def orders(values: Floats, part: slice) -> NDArray[np.float32]:
        """(resamples, combos, combos) V of combo means."""
        means = np.round(networks.combo_means(values, drawn[part]), _DECIMALS)
        return (means[:, :, None] > means[:, None, :]).astype(np.float32)

    result = np.full((len(drawn), len(networks.measures), len(sets)), np.nan)
    pairs = [np.outer(s.onehot.sum(axis=0), s.onehot.sum(axis=0)) for s in sets]
    step = max(1, _CELLS // len(networks.runs) ** 2)
    for start in range(0, len(drawn), step):
        part = slice(start, start + step)
        larger = orders(gap, part)
        larger_shares = [s.group(larger) / count for s, count in zip(sets, pairs, strict=True)]
        for place in range(len(networks.measures)):
            up = orders(networks.readings[:, place], part)
            both = up * larger
            for number, (conditioning, count) in enumerate(zip(sets, pairs, strict=True)):
                result[part, place, number] = _ratio(
                    conditioning.group(both) / count, conditioning.group(up) / count, larger_shares[number]
                )
    return result


def pgdl_score(
    networks: NetworkTable, *, target: str = "", resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """100 · min over pairs of hyperparameters of (mean over groups of I(V_C; V_G)) / (mean of H(V_G)).

    V = 1 if x > x' else 0, over all ordered pairs of combos, a combo with itself included, as the
    competition's scorer counts; a combo's values are means over its seeds. A group is one combination of the
    two hyperparameters' values in both combos; groups weigh equally.

    Returns
    -------
    A tidy table; `statistic` is pgdl (`note` names the pair of the minimum) or cmi (`part` names the pair;
    these have no interval).
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        sets = conditioning_sets(table, [2])
        names = ["+".join(s.names) for s in sets]
        wide = sum(s.onehot.shape[1] for s in sets)
        draws = affordable(resamples, 0.5 * float(len(table.runs)) ** 2 * max(wide, 1))
        point = np.ones((1, len(table)), dtype=np.float32)
        gap = table.target(target)
        if sets:
            values = 100 * _all_ratios(
                table, gap, np.concatenate([point, multiplicities(table, draws, seed)]), sets
            )
        else:
            values = np.full((1 + draws, len(table.measures), 1), np.nan)
        smallest = np.min(np.where(np.isnan(values), np.inf, values), axis=-1)
        smallest[np.isinf(smallest)] = np.nan
        low, high = interval(smallest[1:])
        why_not = "the gap is certain given every pair" if sets else "needs two hyperparameters that vary"
        for k, measure in enumerate(table.measures):
            used = int(np.isfinite(values[0, k]).sum())
            least = names[int(np.nanargmin(values[0, k]))] if used else ""
            common = {
                "measure": measure,
                "target": target or next(iter(table.targets)),
                "rows": len(table),
                "dropped": dropped,
            }
            rows.append(
                {
                    **common,
                    "part": "all",
                    "statistic": "pgdl",
                    "value": smallest[0, k],
                    "low": low[k],
                    "high": high[k],
                    "count": used,
                    "available": len(sets),
                    "resamples": draws,
                    "note": f"smallest given {least}" if used else why_not,
                }
            )
            rows += [
                {**common, "part": name, "statistic": "cmi", "value": value, "count": 1, "available": 1}
                for name, value in zip(names, values[0, k], strict=False)
            ]
    return tidy("pgdl", rows)
