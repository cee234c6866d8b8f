"""Columns of a table of text or typed values as arrays; a wrong cell is named by row and column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cells"]

_MISSING = frozenset({"", "nan", "na", "n/a", "none", "null", "<na>"})
_TRUE, _FALSE = frozenset({"true", "1", "1.0", "yes"}), frozenset({"false", "0", "0.0", "no"})
# Levels of a hyperparameter closer than this, relatively, are one level printed differently.
_SAME_LEVEL = 1e-9


class Cells:
    """Columns of a table of text or typed values as arrays."""

    def __init__(self, frame: pd.DataFrame, source: str) -> None:
        self.frame = frame
        self.source = source

    def _where(self, row: int, column: str) -> str:
        return f"{self.source}: {self.frame.index[row]}, column {column!r}"

    def _parsed(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[Any]]:
        """Numbers, which cells are neither a number nor missing, and the cells."""
        import pandas as pd

        cells = self.frame[column]
        numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        written = cells.tolist()
        wrong = np.zeros(len(written), dtype=bool)
        for row in np.flatnonzero(np.isnan(numbers)):
            wrong[row] = str(written[row]).strip().lower() not in _MISSING
        return numbers, wrong, written

    def readings(self, column: str) -> NDArray[np.float64]:
        """Readings of a measure: NaN where they are missing or infinite."""
        numbers, wrong, written = self._parsed(column)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UserError(f"{self._where(row, column)}: {written[row]!r} is not a number")
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def infinite(self, column: str) -> NDArray[np.bool_]:
        """Which cells hold an infinite number."""
        return np.isinf(self._parsed(column)[0])

    def numbers(self, column: str, *, low: float, high: float) -> NDArray[np.float64]:
        """Finite numbers within bounds."""
        numbers, wrong, written = self._parsed(column)
        bad = wrong | ~np.isfinite(numbers)
        if bad.any():
            row = int(np.argmax(bad))
            said = (
                f"{written[row]!r} is not a number"
                if wrong[row]
                else f"the value is {written[row] or 'missing'}"
            )
            raise UserError(f"{self._where(row, column)}: {said}; write a finite number or remove the row")
        outside = (numbers < low) | (numbers > high)
        if outside.any():
            row = int(np.argmax(outside))
            limits = f"from {low:g} to {high:g}" if np.isfinite(high) else f"of at least {low:g}"
            hint = "; write accuracies as fractions, not percent" if high == 1 else ""
            raise UserError(f"{self._where(row, column)}: {numbers[row]:g} is not a number {limits}{hint}")
        return numbers

    def flags(self, column: str) -> NDArray[np.bool_]:
        """True and false, however they are written."""
        words = [str(cell).strip().lower() for cell in self.frame[column].tolist()]
        for row, word in enumerate(words):
            if word not in _TRUE and word not in _FALSE:
                raise UserError(
                    f"{self._where(row, column)}: {self.frame[column].iloc[row]!r} is neither True nor False"
                )
        return np.array([word in _TRUE for word in words])

    def levels(self, column: str) -> tuple[NDArray[np.int64], tuple[object, ...]]:
        """Number of each row's level, and the levels; numbers that differ by rounding alone are one."""
        numbers, wrong, written = self._parsed(column)
        missing = np.isnan(numbers) & ~wrong
        if missing.any():
            where = self._where(int(np.argmax(missing)), column)
            raise UserError(f"{where}: the value is missing; fill it in or remove the row")
        if wrong.any():
            words = [str(cell).strip() for cell in written]
            texts, codes = np.unique(np.array(words), return_inverse=True)
            return codes.reshape(-1).astype(np.int64), tuple(str(text) for text in texts)
        values, codes = np.unique(numbers, return_inverse=True)
        with np.errstate(invalid="ignore"):
            apart = np.diff(values) > _SAME_LEVEL * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
        merged = np.concatenate([[0], np.cumsum(apart)]).astype(np.int64)
        firsts = values[np.concatenate([[True], apart])]
        return merged[codes.reshape(-1)], tuple(int(v) if float(v).is_integer() else float(v) for v in firsts)
