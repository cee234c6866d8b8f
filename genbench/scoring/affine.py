"""Affine oracle: how well can a·C + b predict the gap in the environment where it does worst? (001 App. B)"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from genbench.scoring.bootstrap import RESAMPLES, affordable, interval, multiplicities, quantile
from genbench.scoring.minimax import Minimax, Quadratics, solve_minimax
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import number_rows
from genbench.scoring.progress import Tick, quiet
from genbench.scoring.tidy import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FAMILIES", "affine_oracle"]

FAMILIES = ("combos", "one_varies", "one_fixed")
BIAS_ONLY = "bias only"
Floats = NDArray[np.float64]
_CELLS = 2**20


@dataclass(frozen=True, eq=False)
class _Family:
    """Environments as sets of combos."""

    name: str
    share: Any
    """(environments, combos) sparse; rows sum to 1: a run's weight in the mean of its environment, times the
    runs of its combo."""


def _families(networks: NetworkTable) -> list[_Family]:
    """`combos`: one each; `one_varies`: all but one hyperparameter fixed; `one_fixed`: one (001 B.2)."""
    codes, combos = networks.combo_codes, len(networks.runs)
    varies: list[NDArray[np.int64]] = []
    fixed: list[NDArray[np.int64]] = []
    for axis in networks.varying:
        varies.append(number_rows(np.delete(codes, axis, axis=1))[1])
        fixed.append(codes[:, axis])
    families = [_family("combos", [np.arange(combos)], networks)]
    families.append(_family("one_varies", varies, networks, least=2))
    families.append(_family("one_fixed", fixed, networks))
    return families


def _family(name: str, labels: list[NDArray[np.int64]], networks: NetworkTable, least: int = 1) -> _Family:
    """One environment per value of each labelling that at least `least` combos carry."""
    blocks = []
    for label in labels:
        _, place = np.unique(label, return_inverse=True)
        place = place.reshape(-1)
        runs = np.bincount(place, weights=networks.runs)
        share = sparse.csr_matrix((networks.runs / runs[place], (place, np.arange(len(place)))))
        blocks.append(share[np.bincount(place) >= least])
    nothing = sparse.csr_matrix((0, len(networks.runs)))
    return _Family(name, sparse.vstack([nothing, *blocks]).tocsr())


@dataclass(frozen=True, eq=False)
class _Fit:
    a: Floats
    b: Floats
    robust: Floats
    mean: Floats
    p90: Floats
    gap: Floats


def _fit(problems: Quadratics, constant: bool, tolerance: float) -> _Fit:
    """Solve a batch; in units of the standardised gap and measure."""
    if constant:
        found = _fit_bias(problems, tolerance)
    else:
        found = solve_minimax(problems, tolerance)
    roots = np.sqrt(np.maximum(problems.at(found.a, found.b), 0.0))
    certificate = np.sqrt(np.maximum(found.value, 0.0)) - np.sqrt(np.maximum(found.bound, 0.0))
    return _Fit(found.a, found.b, roots.max(axis=1), roots.mean(axis=1), quantile(roots.T, 0.9), certificate)


def _fit_bias(problems: Quadratics, tolerance: float) -> Minimax:
    """a = 0: the same problem with a measure that is 0, and a cost on its slope that makes it unique."""
    nothing = np.zeros_like(problems.y)
    flat = Quadratics(np.ones_like(nothing), nothing, nothing, problems.y, problems.yy)
    solved = solve_minimax(flat, tolerance)
    zero = np.zeros_like(solved.a)
    weightless = Quadratics(nothing, nothing, nothing, problems.y, problems.yy)
    return Minimax(zero, solved.b, weightless.at(zero, solved.b).max(axis=1), solved.bound)


def affine_oracle(
    networks: NetworkTable,
    *,
    target: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
    tick: Tick = quiet,
) -> pd.DataFrame:
    """min over a ≥ 0, b of max over environments of the mean of (a·C + b − gap)² (001 Eq. 9), solved exactly.

    C is standardised over the rows used. The problem is convex; the solution carries a duality gap, which
    is reported (`duality_gap`, in the units of the RMSE) and proves how close to the optimum it is.

    Returns
    -------
    A tidy table; `part` is the family of environments: `combos` (App. B), `one_varies` and `one_fixed`
    (B.2); `statistic` one of robust_rmse, mean_rmse, p90_rmse, a, b, duality_gap. The measure `bias only` is
    the baseline a = 0.
    """
    rows: list[dict[str, Any]] = []
    # The baseline needs no reading, so it is fitted to every row.
    for table, dropped in [(networks.select(()), 0), *networks.without_gaps()]:
        families = _families(table)
        environments = sum(f.share.shape[0] for f in families)
        # Some 12 iterations, each of them a hundred passes over the environments.
        draws = affordable(resamples, 12_000.0 * environments)
        times = np.concatenate(
            [np.ones((1, len(table)), dtype=np.float32), multiplicities(table, draws, seed)]
        )
        gap = table.target(target)
        centre, scale = gap.mean(), gap.std() or 1.0
        y = (gap - centre) / scale
        means_y, means_yy = table.combo_means(y, times), table.combo_means(y * y, times)
        for name in table.measures or (BIAS_ONLY,):
            x = _standardised(table, name)
            constant = not x.any()
            by_combo = [table.combo_means(v, times) for v in (x * x, x, x * y)] + [means_y, means_yy]
            tick(1 / (1 + len(networks.measures)))
            for family in families:
                if not family.share.shape[0]:
                    continue  # too few readings for an environment of this family
                fit = _fit_in_parts([(family.share @ m.T).T for m in by_combo], constant)
                values = {
                    "robust_rmse": fit.robust * scale,
                    "mean_rmse": fit.mean * scale,
                    "p90_rmse": fit.p90 * scale,
                    "a": fit.a * scale,
                    "b": fit.b * scale + centre,
                    "duality_gap": fit.gap * scale,
                }
                for statistic, drawn in values.items():
                    low, high = (np.nan, np.nan) if statistic == "duality_gap" else interval(drawn[1:])
                    rows.append(
                        {
                            "measure": name,
                            "target": target or next(iter(table.targets)),
                            "part": family.name,
                            "statistic": statistic,
                            "value": drawn[0],
                            "low": low,
                            "high": high,
                            "count": family.share.shape[0],
                            "available": family.share.shape[0],
                            "rows": len(table),
                            "dropped": dropped,
                            "resamples": draws,
                            "note": "a constant measure, fitted by b alone"
                            if constant and name != BIAS_ONLY
                            else "",
                        }
                    )
    return tidy("affine_oracle", rows)


def _standardised(networks: NetworkTable, measure: str) -> Floats:
    """(rows,) the readings with mean 0 and population SD 1; all 0 for a constant measure and the baseline."""
    if measure == BIAS_ONLY:
        return np.zeros(len(networks))
    reading = networks.readings[:, networks.measures.index(measure)]
    spread = reading.std()
    if np.ptp(reading) == 0 or spread == 0:
        return np.zeros(len(networks))
    return np.asarray((reading - reading.mean()) / spread)


def _fit_in_parts(moments: list[Floats], constant: bool) -> _Fit:
    """`_fit` of (1 + resamples, environments) moments: the value exactly, resamples to 1e-8, in parts."""
    step = max(1, _CELLS // moments[0].shape[1])
    bounds = [0, 1, *range(1 + step, len(moments[0]), step), len(moments[0])]
    parts = [
        _fit(
            Quadratics(*(np.ascontiguousarray(m[i:j]) for m in moments)), constant, 1e-13 if i == 0 else 1e-8
        )
        for i, j in pairwise(bounds)
        if j > i
    ]
    return _Fit(*(np.concatenate([getattr(p, f) for p in parts]) for f in _Fit.__dataclass_fields__))
