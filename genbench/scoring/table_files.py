"""Record tables from files and from pandas, checked so that a wrong cell is named by row and column."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError
from genbench.scoring.cells import Cells
from genbench.scoring.columns import Columns, KnownMeasure, find_columns, short_name
from genbench.scoring.network_table import Loss, NetworkTable
from genbench.scoring.where import Condition, chosen_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["networks_from_frame", "read_frame", "read_table", "table_from_frame"]


def read_table(
    path: str | Path,
    columns: Columns | None = None,
    *,
    known_measures: Mapping[str, KnownMeasure] | None = None,
    keep_unconverged: bool = False,
    where: Sequence[Condition] = (),
) -> NetworkTable:
    """The record table in a CSV or Parquet file; see `find_columns` for what columns mean."""
    return table_from_frame(
        read_frame(path),
        columns,
        source=str(path),
        known_measures=known_measures,
        keep_unconverged=keep_unconverged,
        where=where,
    )


def read_frame(path: str | Path) -> pd.DataFrame:
    """The cells of a CSV or Parquet file; the index names the row: `line 7` or `row 7`."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".pq"):
        raise UserError(f"{path} is neither .csv nor .parquet; a record table is CSV or Parquet")
    try:
        return _read_csv(path) if kind == ".csv" else _read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except UnicodeDecodeError as problem:
        byte = f"byte {problem.start} is {problem.object[problem.start]:#04x}"
        raise UserError(f"{path} is not UTF-8 ({byte}); save it as UTF-8") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from None


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    rows: list[list[str]] = []
    lines: list[str] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(header) > 1 and not header[0]:
                # pandas writes its index without a name, and calls it so when it reads it.
                header[0] = next(name for n in count() if (name := f"Unnamed: {n}") not in header)
            _check_header(header, path)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise UserError(
                        f"{path}: line {reader.line_num} has {len(row)} fields where the header has "
                        f"{len(header)}; {_ragged(row, header)}"
                    )
                rows.append(row)
                lines.append(f"line {reader.line_num}")
        except csv.Error as problem:
            raise UserError(
                f"{path}: line {reader.line_num} is not CSV ({problem}); check its quotes"
            ) from None
    return pd.DataFrame(rows, columns=header, index=lines, dtype=object)


def _check_header(header: list[str], path: Path) -> None:
    if not header:
        raise UserError(f"{path} is empty; the first line names the columns, then comes one row per network")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise UserError(f"{path}: line 1 is one field, {header[0][:40]!r}…; separate columns with commas")
    for place, name in enumerate(header):
        if not name:
            raise UserError(f"{path}: line 1, column {place + 1} has no name; name every column")
        if header.index(name) != place:
            raise UserError(f"{path}: line 1 names column {name!r} twice; keep one of the two")


def _ragged(row: list[str], header: list[str]) -> str:
    if len(row) < len(header):
        return f"column {header[len(row)]!r} has no value"
    return f"{row[len(header)]!r} comes after the last column, {header[-1]!r}"


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise UserError(
            "reading Parquet needs pyarrow; run `pip install 'genbench[parquet]'` or give CSV"
        ) from None
    except Exception as problem:
        # pyarrow raises classes of its own for each way in which a file can be broken.
        raise UserError(
            f"{path} cannot be read as Parquet ({' '.join(str(problem).split())[:120]}); write it again"
        ) from None
    frame.columns = [str(name) for name in frame.columns]
    frame.index = [f"row {number + 1}" for number in range(len(frame))]
    return frame


def table_from_frame(
    frame: pd.DataFrame,
    columns: Columns | None = None,
    *,
    source: str = "the table",
    known_measures: Mapping[str, KnownMeasure] | None = None,
    keep_unconverged: bool = False,
    where: Sequence[Condition] = (),
) -> NetworkTable:
    """A pandas table as `NetworkTable`; a wrong cell raises a `UserError` that names its row and column.

    Parameters
    ----------
    where : only the rows that meet all of these conditions.
    """
    found = find_columns([str(name) for name in frame.columns], columns or Columns(), source, known_measures)
    if len(frame) == 0:
        raise UserError(f"{source} has no rows below its header; give one per trained network")
    given = len(frame)
    frame = chosen_rows(frame, where, source)
    if len(frame) == 0:
        raise UserError(f"{source}: no row has {' and '.join(map(str, where))}; drop one of the conditions")
    reader = Cells(frame, source)
    everything = len(frame)
    if not keep_unconverged:
        # What an unconverged run left in its other columns does not matter.
        keep = np.ones(len(frame), dtype=bool)
        for wanted, names in ((True, found.converged), (False, found.unconverged)):
            for name in names:
                keep &= reader.flags(name) == wanted
        if not keep.any():
            raise UserError(
                f"{source}: no row is converged ({everything} are left out); "
                "use --keep-unconverged to score them"
            )
        frame = frame[keep]
        reader = Cells(frame, source)
    gaps = {short_name(name): reader.numbers(name, low=-1, high=1) for name in (found.gap, *found.ood)}
    coded = [reader.levels(name) for name in found.hyperparameters]
    seeds, _ = reader.levels(found.seed)
    readings = [reader.readings(name) for name in found.measures]
    flipped = frozenset(_short_names(found.higher_is_better))
    measures = _short_names(found.measures)
    signs = np.array([-1.0 if name in flipped else 1.0 for name in measures])
    accuracy = _side_column(found.train_accuracy, frame)
    networks = NetworkTable(
        hyperparameters=_short_names(found.hyperparameters),
        codes=np.stack([codes for codes, _ in coded], axis=1),
        levels=tuple(levels for _, levels in coded),
        seeds=seeds,
        targets=gaps,
        measures=measures,
        readings=np.stack(readings, axis=1) * signs,
        flipped=flipped & set(measures),
        logarithms=frozenset(n for n in measures if n.startswith("log_"))
        | (frozenset(_short_names(found.logarithm)) & set(measures)),
        test_error=_test_error(found, reader),
        test_size=_test_size(found, reader),
        training_loss=_side_column(found.train_loss, frame),
        training_error=None if accuracy is None else 1 - accuracy,
        weights=_side_column(found.size, frame),
        group_by=_short_names(found.group_by),
        source=source,
        left_out=everything - len(frame),
        where=tuple(map(str, where)),
        not_chosen=given - everything,
        losses=_losses(found.measures, np.stack(readings, axis=1), reader),
        lost_rows=int(np.isnan(np.stack(readings, axis=1)).any(axis=1).sum()),
    )
    _check_population(networks, [str(name) for name in frame.index], found)
    return networks


def _losses(columns: Sequence[str], readings: NDArray[np.float64], cells: Cells) -> tuple[Loss, ...]:
    """Measures that lack a finite reading somewhere, and why."""
    return tuple(
        Loss(short_name(column), column, int(missing.sum()), int(cells.infinite(column).sum()))
        for column, missing in zip(columns, np.isnan(readings).T, strict=True)
        if missing.any()
    )


def networks_from_frame(frame: pd.DataFrame, *, source: str) -> NetworkTable:
    """The rows of a frame without measures, one network each: `hp.…`, `seed`, `gap` and what else is known.

    Nothing is asked of them: they may have one seed alone, or settings that do not vary.
    """
    names = [str(name) for name in frame.columns]
    settings = [name for name in names if name.startswith("hp.")]
    reader = Cells(frame.astype(object), source)
    coded = [reader.levels(name) for name in settings]
    accuracy = _side_column("train_accuracy" if "train_accuracy" in names else "", frame)
    return NetworkTable(
        hyperparameters=_short_names(settings),
        codes=np.stack([codes for codes, _ in coded], axis=1)
        if coded
        else np.zeros((len(frame), 0), dtype=np.int64),
        levels=tuple(levels for _, levels in coded),
        seeds=reader.levels("seed")[0],
        targets={"gap": reader.numbers("gap", low=-1, high=1)},
        measures=(),
        readings=np.zeros((len(frame), 0)),
        test_size=reader.numbers("test_size", low=1, high=np.inf) if "test_size" in names else None,
        training_loss=_side_column("train_loss" if "train_loss" in names else "", frame),
        training_error=None if accuracy is None else 1 - accuracy,
        weights=_side_column("parameters" if "parameters" in names else "", frame),
        source=source,
    )


def _check_population(networks: NetworkTable, rows: list[str], columns: Columns) -> None:
    source = networks.source
    if len(networks) == 1:
        raise UserError(f"{source} has one row only ({rows[0]}); scores compare networks, so give more")
    identity = np.column_stack([networks.combo, networks.seeds])
    _, first, place = np.unique(identity, axis=0, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[place.reshape(-1)] != np.arange(len(networks)))
    if len(repeated):
        row = int(repeated[0])
        raise UserError(
            f"{source}: {rows[row]} repeats the hyperparameters and the seed of "
            f"{rows[int(first[place.reshape(-1)[row]])]} (column {columns.seed!r}); keep one row per network"
        )
    if not networks.varying:
        raise UserError(
            f"{source}: every row has the same value in all hyperparameter columns "
            f"({', '.join(columns.hyperparameters)}); scores need networks that differ"
        )
    if networks.runs.max() == 1:
        raise UserError(
            f"{source}: every combination of hyperparameters has one run only (column {columns.seed!r}); "
            "scores need at least two seeds of a combination, and no hyperparameter column that names the run"
        )
    for name, column in zip(networks.targets, (columns.gap, *columns.ood), strict=True):
        if np.ptp(networks.targets[name]) == 0:
            raise UserError(
                f"{source}: column {column!r} is {networks.targets[name][0]:g} in every row; "
                "there is nothing to predict"
            )
    if not np.isfinite(networks.readings).any():
        raise UserError(f"{source}: no measure column holds a finite number; there is nothing to score")


def _short_names(columns: Collection[str]) -> tuple[str, ...]:
    return tuple(map(short_name, columns))


def _test_error(columns: Columns, cells: Cells) -> NDArray[np.float64] | None:
    if columns.test_error:
        return cells.numbers(columns.test_error, low=0, high=1)
    if columns.test_accuracy:
        return 1 - cells.numbers(columns.test_accuracy, low=0, high=1)
    return None


def _side_column(name: str, frame: pd.DataFrame) -> NDArray[np.float64] | None:
    """Numbers that most scores do without; a cell that is none is NaN, and what needs it is not asked."""
    import pandas as pd

    if not name:
        return None
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
    return values if np.isfinite(values).any() else None


def _test_size(columns: Columns, cells: Cells) -> NDArray[np.float64] | None:
    if not columns.test_size:
        return None
    if isinstance(columns.test_size, int):
        if columns.test_size < 1:
            raise UserError(f"the test size {columns.test_size} is not a positive number of images")
        return np.full(len(cells.frame), float(columns.test_size))
    return cells.numbers(columns.test_size, low=1, high=np.inf)
