"""Combinations of several measures' readings across a table, scored like measures (003 A.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from genbench.errors import UserError
from genbench.scoring.network_table import NetworkTable

__all__ = ["METHODS", "add_combination", "combine"]

Floats = NDArray[np.float64]


def _pca(readings: Floats) -> Floats:
    """Projection on the first principal component, its sign such that its loadings sum to something positive.

    The sign of a component is arbitrary; readings all predict a larger gap when higher, so should this.
    """
    centred = readings - readings.mean(axis=0)
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    first = components[0]
    # Loadings that cancel (two measures that disagree everywhere) leave the measure named first to decide.
    direction = first.sum() if abs(first.sum()) > 1e-9 else first[0]
    return np.asarray(centred @ first * (1.0 if direction > 0 else -1.0))


def _npca(readings: Floats) -> Floats:
    """`_pca` of readings with mean 0 and population standard deviation 1; a constant one stays 0."""
    spread = readings.std(axis=0)
    return _pca((readings - readings.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _average(readings: Floats) -> Floats:
    return np.asarray(readings.mean(axis=1))


def _product(readings: Floats) -> Floats:
    return np.asarray(readings.prod(axis=1))


def _product_and_average(readings: Floats) -> Floats:
    return _product(readings) + _average(readings)


def _average_rank(readings: Floats) -> Floats:
    """Mean of ranks, 1 for the smallest reading; equal readings share the mean of their ranks."""
    return np.asarray(rankdata(readings, axis=0).mean(axis=1))


METHODS: dict[str, Callable[[Floats], Floats]] = {
    "pca": _pca,
    "npca": _npca,
    "avg": _average,
    "prod": _product,
    "prod+avg": _product_and_average,
    "avg_rank": _average_rank,
}
"""PCA, NPCA, AVG, PROD, PROD+AVG and AVG RANK of 003 A.8.1–A.8.5."""


def combine(method: str, readings: NDArray[np.float64]) -> Floats:
    """(rows,) combination of (rows, measures) readings, all oriented so that higher means a larger gap.

    A row that misses a reading gets NaN and does not influence the others.
    """
    if method not in METHODS:
        raise UserError(f"unknown combination {method!r}; there are {', '.join(METHODS)}")
    complete = np.isfinite(readings).all(axis=1)
    result = np.full(len(readings), np.nan)
    if complete.any():
        result[complete] = METHODS[method](readings[complete])
    return result


def add_combination(networks: NetworkTable, method: str, measures: Sequence[str]) -> NetworkTable:
    """The table with one more measure, `method(a,b)`, combined over all of its rows.

    Intervals of its scores keep the combination as it is: it is not made anew in each resample.
    """
    if len(measures) < 2:
        raise UserError(f"a combination needs two measures or more; write {method}:A,B")
    for name in measures:
        if name not in networks.measures:
            raise UserError(
                f"{networks.source}: no measure {name!r} to combine; there are {', '.join(networks.measures)}"
            )
    places = [networks.measures.index(name) for name in measures]
    column = combine(method, networks.readings[:, places])
    name = f"{method}({','.join(measures)})"
    if name in networks.measures:
        return networks
    return replace(
        networks,
        measures=(*networks.measures, name),
        readings=np.column_stack([networks.readings, column]),
    )
