"""Readings that were computed elsewhere: a table with a column `network` and one column per measure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError
from genbench.scoring.cells import Cells
from genbench.scoring.columns import KnownMeasure, short_name
from genbench.scoring.table_files import read_frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NETWORK", "directions", "read_readings", "readings_of"]

NETWORK = "network"
_MEANINGS = ("better", "worse")


def read_readings(path: str | Path) -> pd.DataFrame:
    """The file, with the columns that it must have."""
    frame = read_frame(path)
    names = [str(name) for name in frame.columns]
    if NETWORK not in names:
        raise UserError(f"{path}: no column {NETWORK!r}, which says which network a row is about")
    if len(names) == 1:
        raise UserError(f"{path}: no column but {NETWORK!r}; give one column per measure")
    if len(frame) == 0:
        raise UserError(f"{path} has no rows below its header; give one per network")
    return frame


def readings_of(
    frame: pd.DataFrame, path: Path, networks: Sequence[str], source: str
) -> dict[str, NDArray[np.float64]]:
    """Measure to its values in the order of `networks`; NaN where the file says nothing, or no finite number.

    Parameters
    ----------
    networks : all networks of the suite `source`; no others may be in the file.
    """
    measures = [str(name) for name in frame.columns if name != NETWORK]
    shown = [short_name(name) for name in measures]
    for number, name in enumerate(shown):
        if name in shown[:number]:
            raise UserError(f"{path}: two columns are both shown as {name!r}; rename one")
    place = {name: number for number, name in enumerate(networks)}
    rows = [str(value) for value in frame[NETWORK]]
    for line, name in zip(frame.index, rows, strict=True):
        if name not in place:
            raise UserError(f"{path}: {line}: {source} has no network {name!r}; {_near(name, networks)}")
    repeated = {name for number, name in enumerate(rows) if name in rows[:number]}
    if repeated:
        raise UserError(f"{path}: network {min(repeated)!r} has two rows; keep one of them")
    cells = Cells(frame, str(path))
    found = {}
    for name, short in zip(measures, shown, strict=True):
        values = np.full(len(networks), np.nan)
        values[[place[row] for row in rows]] = cells.readings(name)
        found[short] = values
    return found


def directions(
    texts: Sequence[str], measures: Collection[str], known: Mapping[str, KnownMeasure]
) -> dict[str, float]:
    """Measure to what its values are multiplied with so that higher means worse.

    Parameters
    ----------
    texts : `better` or `worse` for all, or `NAME:better`; the last word on a measure counts. A measure that
        nothing is said of is as genbench knows it, or else higher means worse.
    """
    meaning = {name: known[name].higher_means if name in known else "worse" for name in measures}
    for text in texts:
        name, colon, word = text.rpartition(":")
        if word not in _MEANINGS or (colon and not name):
            raise UserError(f"--higher-means {text!r}: write better, worse, or NAME:better")
        if colon and name not in meaning:
            raise UserError(f"--higher-means {text!r}: no measure {name!r}; {_near(name, list(meaning))}")
        meaning |= dict.fromkeys([name] if colon else measures, word)
    return {name: -1.0 if word == "better" else 1.0 for name, word in meaning.items()}


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known[:5])}, …"
