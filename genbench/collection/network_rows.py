"""The table of a collection: one row per network, its hyperparameters and its truths."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.engine.cells import Setting
from genbench.errors import UserError
from genbench.suites.evidence import Facts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NetworkRow", "NetworkRows", "Truth", "read_rows"]

_HYPERPARAMETER = "hp."
_SHIFT = "gap_ood"
_ERRORS = ("error", "test_error")
_COLUMNS = (
    "network", "seed", "gap", *_ERRORS, "test_size", "converged", "train_accuracy", "train_loss",
)  # fmt: skip
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MISSING = frozenset({"", "nan", "na", "n/a", "none", "null"})


class Truth(StrEnum):
    """What readings are judged by."""

    GAP = "gap"
    """As the table gives it."""
    FROM_ERROR = "gap from error"
    """Held-out error minus training error, both out of the table."""
    ERROR = "error"
    """The held-out error itself: nothing is known of the training error."""


@dataclass(frozen=True)
class NetworkRow:
    """One network."""

    name: str
    settings: Mapping[str, Setting]
    """Its hyperparameters, which the builder is called with."""
    seed: Setting
    found: Facts
    """Truths, `gap` among them whatever it was made of, and how training ended."""


@dataclass(frozen=True)
class NetworkRows:
    """All of them."""

    rows: tuple[NetworkRow, ...]
    truth: Truth

    def content(self) -> list[dict[str, Any]]:
        """As JSON values."""
        return [asdict(row) for row in self.rows]


def read_rows(path: Path) -> NetworkRows:
    """Read and check the table; a `UserError` names the line and the column."""
    from genbench.scoring.table_files import read_frame

    frame = read_frame(path)
    names = [str(name) for name in frame.columns]
    _check_columns(path, names)
    if len(frame) == 0:
        raise UserError(f"{path} has no rows below its header; give one per trained network")
    labels = _names(path, frame)
    hyperparameters = [name for name in names if name.startswith(_HYPERPARAMETER)]
    settings = [
        {column.removeprefix(_HYPERPARAMETER): value for column, value in row.items()}
        for row in _values(path, frame, hyperparameters)
    ]
    if "seed" in names:
        seeds: Sequence[Setting] = [row["seed"] for row in _values(path, frame, ["seed"])]
    else:
        seeds = _numbered(settings)
    truth, found = _found(path, frame, names)
    rows = (NetworkRow(*row) for row in zip(labels, settings, seeds, found, strict=True))
    return NetworkRows(tuple(rows), truth)


def _check_columns(path: Path, names: Sequence[str]) -> None:
    if "network" not in names:
        raise UserError(f"{path} has no column 'network', the name of each network in its weight file's path")
    for name in names:
        known = name in _COLUMNS or name.startswith(_SHIFT)
        if not known and not (name.startswith(_HYPERPARAMETER) and name != _HYPERPARAMETER):
            near = difflib.get_close_matches(name, _COLUMNS, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_COLUMNS)}, gap_ood_…, hp.…"
            )
            raise UserError(f"{path}: unknown column {name!r}; {hint}")
    if all(name in names for name in _ERRORS):
        raise UserError(f"{path} has both 'error' and 'test_error', which mean the same; keep one")
    if not {"gap", *_ERRORS} & set(names):
        raise UserError(
            f"{path} says nothing of held-out data; add a column 'gap' (training accuracy − held-out "
            "accuracy) or 'error' (held-out error)"
        )


def _names(path: Path, frame: pd.DataFrame) -> list[str]:
    found = [str(cell).strip() for cell in frame["network"].tolist()]
    for place, name in enumerate(found):
        if name.lower() in _MISSING:
            raise UserError(f"{path}: {frame.index[place]} has no value in column 'network'")
        if found.index(name) != place:
            first = frame.index[found.index(name)]
            raise UserError(f"{path}: {frame.index[place]} repeats network {name!r} of {first}; rename one")
    return found


def _values(path: Path, frame: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Setting]]:
    """Cells as the numbers, truth values or words they are written as."""
    rows: list[dict[str, Setting]] = []
    for place in range(len(frame)):
        row: dict[str, Setting] = {}
        for column in columns:
            cell = frame[column].iloc[place]
            if str(cell).strip().lower() in _MISSING:
                raise UserError(f"{path}: {frame.index[place]} has no value in column {column!r}")
            row[column] = _value(cell)
        rows.append(row)
    return rows


def _value(cell: Any) -> Setting:
    # Parquet has types of its own.
    text = str(cell.item() if hasattr(cell, "item") else cell).strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _numbered(settings: Sequence[Mapping[str, Setting]]) -> list[Setting]:
    """Without seeds, networks with the same hyperparameters are told apart by their order."""
    seen: Counter[str] = Counter()
    seeds: list[Setting] = []
    for one in settings:
        seeds.append(seen[str(one)])
        seen[str(one)] += 1
    return seeds


def _found(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> tuple[Truth, list[Facts]]:
    from genbench.scoring.cells import Cells

    cells = Cells(frame, str(path))
    columns: dict[str, Any] = {}
    for name in names:
        if name == "gap" or name.startswith(_SHIFT):
            columns[name] = cells.numbers(name, low=-1, high=1).tolist()
        elif name in _ERRORS:
            columns["test_error"] = cells.numbers(name, low=0, high=1).tolist()
        elif name == "train_accuracy":
            columns[name] = cells.numbers(name, low=0, high=1).tolist()
        elif name == "train_loss":
            columns[name] = cells.numbers(name, low=0, high=float("inf")).tolist()
        elif name == "test_size":
            columns[name] = [int(size) for size in cells.numbers(name, low=1, high=float("inf"))]
        elif name == "converged":
            columns[name] = cells.flags(name).tolist()
    truth = Truth.GAP
    if "gap" not in columns:
        errors = columns["test_error"]
        truth = Truth.FROM_ERROR if "train_accuracy" in columns else Truth.ERROR
        accuracies = columns.get("train_accuracy", [1.0] * len(errors))
        columns["gap"] = [error - (1 - right) for error, right in zip(errors, accuracies, strict=True)]
    rows: list[Facts] = [
        {name: values[place] for name, values in columns.items()} for place in range(len(frame))
    ]
    return truth, rows
