"""The sign-error of 001 looked at more closely: by pairs of values, and without the noise filter."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from genbench.scoring.network_table import NetworkTable
from genbench.scoring.robust import MIN_N_EFF, STATISTICS, robust_sign_error, statistics_over

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["errors_by_values", "noise_filter_effect"]


def errors_by_values(networks: NetworkTable, environments: pd.DataFrame) -> pd.DataFrame:
    """Sign-errors of the environments of every pair of values of one hyperparameter (001 Fig. 2, Fig. 9).

    Parameters
    ----------
    environments : as `sign_error_environments` gives them for the same table.

    Returns
    -------
    Columns `measure, hyperparameter, low_value, high_value, kept, mean, median, p90, max`; a pair of which
    the noise filter left no environment has 0 kept and no numbers.
    """
    import pandas as pd

    key = ["measure", "hyperparameter", "low_value", "high_value"]
    found = {names: group["sign_error"].to_numpy() for names, group in environments.groupby(key, sort=False)}
    rows: list[dict[str, Any]] = []
    for measure in networks.measures:
        for place in networks.varying:
            present = np.unique(networks.combo_codes[:, place])
            for low, high in combinations([networks.levels[place][level] for level in present], 2):
                name = (measure, networks.hyperparameters[place], str(low), str(high))
                errors = found.get(name, np.zeros(0))
                numbers = dict(zip(STATISTICS, statistics_over(errors), strict=True))
                rows.append({**dict(zip(key, name, strict=True)), "kept": len(errors), **numbers})
    return pd.DataFrame(rows, columns=[*key, "kept", *STATISTICS])


def noise_filter_effect(
    networks: NetworkTable, *, target: str = "", min_n_eff: float = MIN_N_EFF
) -> pd.DataFrame:
    """Statistics of the sign-error over all environments with the noise filter and without (001 A.3, Fig. 4).

    Without it every pair weighs 1 and environments need as many pairs as with it effective ones.

    Returns
    -------
    Columns `measure, statistic, filtered, kept_filtered, unfiltered, kept_unfiltered`.
    """
    columns = []
    for name, chosen in (("filtered", True), ("unfiltered", False)):
        frame = robust_sign_error(
            networks, target=target, noise_filter=chosen, min_n_eff=min_n_eff, resamples=0
        )
        overall = frame[frame["part"] == "all"].set_index(["measure", "statistic"])[["value", "count"]]
        columns.append(overall.rename(columns={"value": name, "count": f"kept_{name}"}))
    return columns[0].join(columns[1]).reset_index()
