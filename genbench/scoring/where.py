"""Some rows of a table: `dataset=svhn`, `depth=2,4`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from genbench.errors import UserError
from genbench.scoring.cells import Cells
from genbench.scoring.columns import short_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Condition", "chosen_rows", "read_condition"]

_SAME = 1e-9
"""Numbers closer than this, relatively, are one number printed differently."""


@dataclass(frozen=True)
class Condition:
    """Rows whose cell of a column is one of some values."""

    column: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.column}={','.join(self.values)}"


def read_condition(text: str) -> Condition:
    """COLUMN=VALUE or COLUMN=A,B."""
    column, equals, values = text.partition("=")
    named = tuple(value.strip() for value in values.split(",") if value.strip())
    if not equals or not column.strip() or not named:
        raise UserError(f"{text!r} is not COLUMN=VALUE or COLUMN=A,B")
    return Condition(column.strip(), named)


def chosen_rows(frame: pd.DataFrame, conditions: Sequence[Condition], source: str) -> pd.DataFrame:
    """The rows that meet every condition; a column may be named with or without `hp.` before it.

    A column of numbers is compared as numbers, so that 0.01 is 1e-2; any other as text.
    """
    for one in conditions:
        column = _column(one, [str(name) for name in frame.columns], source)
        codes, levels = Cells(frame, source).levels(column)
        wanted = [
            number for value in one.values for number, level in enumerate(levels) if _same(value, level)
        ]
        missing = [value for value in one.values if not any(_same(value, level) for level in levels)]
        if missing:
            known = ", ".join(map(str, levels[:12])) + (", …" if len(levels) > 12 else "")
            raise UserError(f"{source}: no row has {column} = {missing[0]}; there are {known}")
        frame = frame[np.isin(codes, wanted)]
    return frame


def _column(condition: Condition, names: list[str], source: str) -> str:
    if condition.column in names:
        return condition.column
    found = [name for name in names if short_name(name) == condition.column]
    if len(found) == 1:
        return found[0]
    near = difflib.get_close_matches(condition.column, [*names, *map(short_name, names)], n=1)
    said = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names[:12])}"
    if found:
        said = f"columns {' and '.join(map(repr, found))} are both called so; write one of them in full"
    raise UserError(f"{source}: no column {condition.column!r} to choose rows by; {said}")


def _same(value: str, level: object) -> bool:
    if isinstance(level, str):
        return value == level
    try:
        return abs(float(value) - float(level)) <= _SAME * max(abs(float(value)), abs(float(level)))  # type: ignore[arg-type]
    except ValueError:
        return False
