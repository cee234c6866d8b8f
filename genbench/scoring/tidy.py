"""The one form in which every score comes: a tidy table with one number per row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "tidy"]

COLUMNS = (
    "score",
    "measure",
    "target",
    "part",
    "statistic",
    "value",
    "low",
    "high",
    "count",
    "available",
    "rows",
    "dropped",
    "resamples",
    "note",
)
"""`part` is a hyperparameter, a family, a group or a set; `count` of `available` parts of the data are
behind the number, from `rows` rows, with `dropped` rows left out for want of a reading."""


_TEXTS = ("measure", "target", "part", "statistic", "note")
_COUNTS = ("count", "available", "rows", "dropped", "resamples")


def tidy(score: str, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table with `COLUMNS`; what a row leaves out is empty, NaN or 0.

    An interval that does not contain its value is extended to it.
    """
    import pandas as pd

    given = list(rows)
    columns: dict[str, Any] = {"score": [score] * len(given)}
    for name in COLUMNS[1:]:
        if name in _TEXTS:
            columns[name] = [row.get(name, "") for row in given]
        elif name in _COUNTS:
            columns[name] = np.array([row.get(name, 0) for row in given], dtype=np.int64)
        else:
            columns[name] = np.array([row.get(name, np.nan) for row in given], dtype=np.float64)
    # Percentiles of a biased score may all lie to one side of its value; see `scoring.bootstrap`.
    columns["low"] = np.where(columns["value"] < columns["low"], columns["value"], columns["low"])
    columns["high"] = np.where(columns["value"] > columns["high"], columns["value"], columns["high"])
    return pd.DataFrame(columns)
