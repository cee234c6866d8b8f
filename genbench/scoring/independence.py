"""Conditional-independence score K: what a measure says beyond any two hyperparameters (002 C.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities
from genbench.scoring.conditioning import ConditioningSet, conditioning_sets, entropy_sum, find_views
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pair_counts import MINUS, PLUS, PairCounter
from genbench.scoring.progress import Tick, part_of, quiet
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["conditional_independence"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
_CELLS = 2**25
"""Numbers that the sums of one measure may take."""


def _ncmi(up: Floats, gap: Floats) -> Floats:
    """(resamples,) I(V_C; V_G | U_S) / H(V_G | U_S) of one set S; NaN where the entropy is 0.

    Parameters
    ----------
    up : (3, values, values, resamples) weight of pairs with V_C = + and V_G = −, 0, + in each group.
    gap : (3, values, values, resamples) the same with any V_C.
    """
    # Swapping the two runs of a pair turns both signs and the group around.
    down = np.swapaxes(up[::-1], 1, 2)
    tie = gap - up - down
    known = entropy_sum(gap.sum(axis=0)).sum(axis=(0, 1))
    by_gap = entropy_sum(gap).sum(axis=(0, 1, 2))
    by_measure = 2 * entropy_sum(up.sum(axis=0)).sum(axis=(0, 1))
    by_measure += entropy_sum(tie.sum(axis=0)).sum(axis=(0, 1))
    by_both = 2 * entropy_sum(up).sum(axis=(0, 1, 2)) + entropy_sum(tie).sum(axis=(0, 1, 2))
    # Every sum is the total weight times an entropy, so the ratio needs no normalisation.
    entropy = known - by_gap
    information = by_both + known - by_gap - by_measure
    positive = entropy > 1e-12 * np.maximum(1.0, known)
    ratio = np.divide(information, entropy, out=np.full_like(entropy, np.nan), where=positive)
    return np.asarray(np.clip(ratio, 0.0, 1.0))


def _with_smaller(sets: list[ConditioningSet], largest: list[int], counts: list[Floats]) -> list[Floats]:
    """Counts of every set from those of the largest ones: groups of a smaller set are made of theirs."""
    by_place = dict(zip(largest, counts, strict=True))
    everything = []
    for number, one in enumerate(sets):
        if number not in by_place:
            parent = next(n for n in largest if set(one.places) <= set(sets[n].places))
            value = np.zeros(sets[parent].values, dtype=np.int64)
            value[sets[parent].label] = one.label
            merge = np.eye(one.values)[value]
            everything.append(np.einsum("sabr,ax,by->sxyr", by_place[parent], merge, merge, optimize=True))
        else:
            everything.append(by_place[number])
    return everything


def _all_ncmi(
    networks: NetworkTable, gap: Floats, drawn: Singles, sets: list[ConditioningSet], tick: Tick
) -> tuple[Floats, Floats]:
    """(resamples, measures, sets), and tau over all pairs, (measures,)."""
    result = np.full((len(drawn), len(networks.measures), len(sets)), np.nan)
    tau = np.full(len(networks.measures), np.nan)
    size = max(len(s.places) for s in sets)
    largest = [number for number, s in enumerate(sets) if len(s.places) == size]
    cells = sum(view.cells**2 for view in find_views(networks, sets))
    step = max(1, _CELLS // cells)
    for begin in range(0, len(drawn), step):
        part = slice(begin, begin + step)
        counter = PairCounter(networks, gap, drawn[part], [sets[number] for number in largest])
        gaps = _with_smaller(sets, largest, counter.all_pairs)
        for start in range(0, len(networks.measures), counter.together):
            readings = networks.readings[:, start : start + counter.together]
            share = readings.size / networks.readings.size * len(drawn[part]) / len(drawn)
            for place, counts in enumerate(counter.count(readings, part_of(tick, share))):
                if begin == 0:
                    # Of the first resample, the table itself; every unordered pair is in C_i > C_j once.
                    agreement = counts[0][PLUS, ..., 0].sum() - counts[0][MINUS, ..., 0].sum()
                    tau[start + place] = 2 * agreement / gaps[0][..., 0].sum()
                for number, up in enumerate(_with_smaller(sets, largest, counts)):
                    result[part, start + place, number] = _ncmi(up, gaps[number])
    return result, tau


def conditional_independence(
    networks: NetworkTable,
    *,
    target: str = "",
    largest_set: int = 2,
    resamples: int = RESAMPLES,
    seed: int = 0,
    tick: Tick = quiet,
) -> pd.DataFrame:
    """K of every measure, plug-in estimate over ordered pairs of distinct runs (002 C.2).

        V_C = sgn(dC), V_G = sgn(dG)        K = min over S of I(V_C; V_G | U_S) / H(V_G | U_S)

    S runs over the sets of at most `largest_set` hyperparameters, the empty one included; U_S is the pair of
    their values. K is blind to direction, a measure that is always wrong has K = 1, so the overall tau
    stands beside it.

    Returns
    -------
    A tidy table; `statistic` is K (`note` names the S of the minimum), tau (the direction) or ncmi (`part`
    names S; these have no interval).
    """
    rows: list[dict[str, Any]] = []
    for table, dropped in networks.without_gaps():
        sets = conditioning_sets(table, range(largest_set + 1))
        names = ["+".join(s.names) or "(empty)" for s in sets]
        cells = sum(view.cells**2 for view in find_views(table, sets))
        draws = affordable(resamples, len(table) ** 2 / 4 + 4.0 * len(table.runs) ** 2 + 10.0 * cells)
        gap = table.target(target)
        point = np.ones((1, len(table)), dtype=np.float32)
        drawn = np.concatenate([point, multiplicities(table, draws, seed)])
        share = len(table.measures) / max(1, len(networks.measures))
        values, direction = _all_ncmi(table, gap, drawn, sets, part_of(tick, share))
        smallest = np.min(np.where(np.isnan(values), np.inf, values), axis=-1)
        smallest[np.isinf(smallest)] = np.nan
        low, high = interval(smallest[1:])
        for k, measure in enumerate(table.measures):
            common = {
                "measure": measure,
                "target": target or next(iter(table.targets)),
                "part": "all",
                "rows": len(table),
                "dropped": dropped,
                "available": len(sets),
            }
            used = int(np.isfinite(values[0, k]).sum())
            least = names[int(np.nanargmin(values[0, k]))] if used else ""
            rows.append(
                {
                    **common,
                    "statistic": "K",
                    "value": smallest[0, k],
                    "low": low[k],
                    "high": high[k],
                    "count": used,
                    "resamples": draws,
                    "note": f"smallest given {least}" if used else "the gap is certain given every set",
                }
            )
            rows.append({**common, "statistic": "tau", "value": direction[k], "count": used})
            rows += [
                {**common, "part": name, "statistic": "ncmi", "value": value, "count": 1, "available": 1}
                for name, value in zip(names, values[0, k], strict=True)
            ]
    return tidy("independence", rows)
