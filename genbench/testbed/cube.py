"""The cube of a family: six statistics of every zero-shot level × SSIM level × model (004 Sec. 3).

Where a suite adapts its backbones in several ways, a cube has a fourth axis `adaptation`: each of a model's
adaptations is a network of its own. Marginals, heat maps and trade-off point use the mean over it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.errors import UserError

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "ADAPTATION",
    "AXES",
    "COLUMNS",
    "DIMS",
    "STATISTICS",
    "check_cube",
    "class_error",
    "class_statistics",
    "make_cube",
    "marginals",
    "network_cube",
    "over_adaptations",
    "read_cube",
    "slices",
    "summaries",
    "write_cube",
]

DIMS = ("zero_shot", "ssim", "model")
AXES = ("zero_shot", "ssim", "weights")
"""The coordinate of each dimension: zero-shot fraction, SSIM, weight count."""

ADAPTATION = "adaptation"
"""The dimension of cubes with several networks of each model, after those of `DIMS`."""

STATISTICS = ("error_mean", "error_sd", "error_p10", "kappa_mean", "kappa_sd", "kappa_p10")
COLUMNS = ("ssim", "zero_shot", "weights", *STATISTICS)
"""Columns of a cube as CSV, one row per grid point."""

# Levels that differ by less are one level: 1/6 is not printed alike everywhere.
_DIGITS = 9


def class_error(truth: ArrayLike, prediction: ArrayLike, classes: int) -> NDArray[np.float64]:
    """Share of each class's images not classified as it (the first term of Eq. 1); NaN without images.

    Parameters
    ----------
    truth, prediction : (samples,) class numbers below `classes`.
    """
    y, p = np.asarray(truth, dtype=np.int64), np.asarray(prediction, dtype=np.int64)
    images = np.bincount(y, minlength=classes)
    wrong = np.bincount(y[y != p], minlength=classes)
    return np.where(images > 0, wrong / np.maximum(images, 1), np.nan)


def class_statistics(error: ArrayLike, kappa: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """M = mean, SD = population standard deviation, P10 = 10th percentile (linear) over classes, of both.

    Parameters
    ----------
    error, kappa : (..., classes) values per class; NaN where a class is not part of the cell.

    Returns
    -------
    The six `STATISTICS` by name, each (...).
    """
    results: dict[str, NDArray[np.float64]] = {}
    for name, values in (("error", error), ("kappa", kappa)):
        for statistic, summary in summaries(values).items():
            results[f"{name}_{statistic}"] = summary
    return results


def summaries(values: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """`mean`, `sd` and `p10` over the last axis; NaN are left out."""
    x = np.asarray(values, dtype=np.float64)
    if np.isfinite(x).all():  # several times faster, and what a resampled cube gives
        return {"mean": x.mean(axis=-1), "sd": x.std(axis=-1), "p10": _quantile(np.asarray(values), 0.1)}
    return {"mean": np.nanmean(x, axis=-1), "sd": np.nanstd(x, axis=-1), "p10": _percentile(x, 0.1)}


def _quantile(x: NDArray[Any], share: float) -> NDArray[np.float64]:
    """`np.quantile` over the last axis to the bit, five times as fast for single precision.

    A whole sort of short rows beside each other in memory beats numpy's search for two of their values.
    """
    ordered = np.sort(np.ascontiguousarray(x), axis=-1)
    rank = share * (x.shape[-1] - 1)
    below = int(np.floor(rank))
    weight = rank - below
    low = ordered[..., below].astype(np.float64)
    high = ordered[..., min(below + 1, x.shape[-1] - 1)].astype(np.float64)
    step = high - low
    return np.asarray(low + step * weight if weight < 0.5 else high - step * (1 - weight))


def _percentile(x: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """`np.nanquantile` over the last axis, which numpy computes one row at a time in Python."""
    ordered = np.sort(x, axis=-1)  # NaN goes last
    rank = share * np.maximum(np.isfinite(x).sum(axis=-1, keepdims=True) - 1, 0)
    below = np.floor(rank).astype(np.int64)
    above = np.ceil(rank).astype(np.int64)
    low, high = np.take_along_axis(ordered, below, axis=-1), np.take_along_axis(ordered, above, axis=-1)
    return np.asarray((low + (rank - below) * (high - low))[..., 0])


def make_cube(
    statistics: Mapping[str, ArrayLike],
    *,
    zero_shot: ArrayLike,
    ssim: ArrayLike,
    weights: ArrayLike,
    models: Sequence[str] | None = None,
    adaptations: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    per_class: Mapping[str, ArrayLike] | None = None,
    provenance: Mapping[str, str | int | float] | None = None,
) -> xr.Dataset:
    """A cube from its arrays, checked and sorted along every axis.

    Parameters
    ----------
    statistics : the six `STATISTICS` by name, each (zero_shot, ssim, model).
    zero_shot, ssim, weights : zero-shot fractions, SSIM levels, weight counts.
    models, classes : their names; numbers as text without.
    adaptations : their names, if every model has several; all arrays then have that axis after `model`.
    per_class : further arrays by name, each (zero_shot, ssim, model, class), such as `error` and `gap`.
    provenance : where the cube comes from; becomes the attributes.
    """
    import xarray as xr

    counts = np.asarray(weights)
    coordinates: dict[str, Any] = {
        "zero_shot": np.asarray(zero_shot, dtype=np.float64),
        "ssim": np.asarray(ssim, dtype=np.float64),
        "model": [f"{count:.0f}" for count in counts.ravel()] if models is None else list(models),
        "weights": ("model", counts.astype(np.float64)),
    }
    dims: tuple[str, ...] = DIMS
    if adaptations is not None:
        dims = (*DIMS, ADAPTATION)
        coordinates[ADAPTATION] = list(adaptations)
    if classes is not None:
        coordinates["class"] = list(classes)
    arrays = {name: (dims, np.asarray(values)) for name, values in statistics.items()}
    detail = {name: ((*dims, "class"), np.asarray(values)) for name, values in (per_class or {}).items()}
    return check_cube(xr.Dataset({**arrays, **detail}, coordinates, dict(provenance or {})))


def check_cube(cube: xr.Dataset, source: str = "the cube") -> xr.Dataset:
    """The cube with its axes in order and increasing; a `UserError` that says what is wrong with it."""
    for dim, axis in zip(DIMS, AXES, strict=True):
        if dim not in cube.dims or axis not in cube.coords or cube[axis].dims != (dim,):
            raise UserError(
                f"{source} has no coordinate {axis!r} along a dimension {dim!r}; "
                "a cube has dimensions zero_shot, ssim, model and coordinates zero_shot, ssim, weights"
            )
        _check_levels(np.asarray(cube[axis].values), axis, source)
    dims = (*DIMS, ADAPTATION) if ADAPTATION in cube.dims else DIMS
    for name in STATISTICS:
        if name not in cube or set(cube[name].dims) != set(dims):
            raise UserError(
                f"{source} has no variable {name!r} over zero_shot, ssim, model; "
                f"a cube has {', '.join(STATISTICS)}"
            )
    cube = cube.sortby(list(AXES)).transpose(*dims, ...)
    for name in STATISTICS:
        bad = ~np.isfinite(_numbers(cube[name].values, name, source))
        if bad.any():
            where = np.argwhere(bad)[0]
            point = _point(*(float(cube[axis][i]) for axis, i in zip(AXES, where[: len(AXES)], strict=True)))
            raise UserError(
                f"{source} has no finite {name!r} at {point}; every grid point needs all six statistics"
            )
    return cube


def _numbers(values: NDArray[Any], name: str, source: str) -> NDArray[np.float64]:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{source}: {name!r} does not hold numbers") from None


def _check_levels(values: NDArray[Any], axis: str, source: str) -> None:
    levels = _numbers(values, axis, source)
    wrong = [level for level in levels if not _allowed(axis, level)]
    if wrong:
        raise UserError(f"{source}: {axis} = {wrong[0]:g} is not {_RANGES[axis]}")
    if len(levels) == 0 or (np.diff(np.sort(np.round(levels, _DIGITS))) == 0).any():
        raise UserError(f"{source}: the levels of {axis} must be at least one and all different")


_RANGES = {
    "zero_shot": "a fraction from 0 to 1",
    "ssim": "an SSIM from 0 to 1",
    "weights": "a positive number of weights",
}


def _allowed(axis: str, level: float) -> bool:
    return bool(0 < level < np.inf if axis == "weights" else 0 <= level <= 1)


def _point(zero_shot: float, ssim: float, weights: float) -> str:
    return f"ssim = {ssim:.6g}, zero_shot = {zero_shot:.6g}, weights = {weights:.10g}"


def over_adaptations(cube: xr.Dataset) -> xr.Dataset:
    """The six statistics over zero-shot × SSIM × model: the mean over those adaptations that converged."""
    statistics = cube[list(STATISTICS)]
    if ADAPTATION not in cube.dims:
        return statistics
    kept = statistics.where(cube["converged"] > 0) if "converged" in cube.coords else statistics
    return kept.mean(ADAPTATION, keep_attrs=True).drop_vars("converged", errors="ignore")


def network_cube(cube: xr.Dataset) -> xr.Dataset:
    """The same cube with a model for every network, called "model/adaptation", and no axis of adaptations."""
    if ADAPTATION not in cube.dims:
        return cube
    pairs = [(str(model), str(own)) for model in cube["model"].values for own in cube[ADAPTATION].values]
    stacked = cube.stack(network=("model", ADAPTATION), create_index=False)
    flat = stacked.drop_vars(["model", ADAPTATION]).rename(network="model")
    return flat.assign_coords(
        model=[f"{model}/{own}" for model, own in pairs], backbone=("model", [model for model, _ in pairs])
    )


def marginals(cube: xr.Dataset) -> dict[str, xr.Dataset]:
    """The six statistics along each dimension, mean over the others (Eq. 5).

    The paper writes a sum; its figures show the mean, which differs by a constant.
    """
    statistics = over_adaptations(cube)
    return {dim: statistics.mean([other for other in DIMS if other != dim]) for dim in DIMS}


def slices(cube: xr.Dataset) -> dict[str, xr.Dataset]:
    """The six statistics per model, or per network of it, in the two slices (Eq. 6).

    `robustness`: zero-shot = 0, mean over SSIM; `zero_shot`: SSIM = 1, mean over zero-shot.
    """
    statistics = cube[list(STATISTICS)]
    return {
        "robustness": _level(statistics, "zero_shot", 0.0).mean("ssim"),
        "zero_shot": _level(statistics, "ssim", 1.0).mean("zero_shot"),
    }


def _level(cube: xr.Dataset, axis: str, level: float) -> xr.Dataset:
    found = np.flatnonzero(np.abs(cube[axis].values - level) < 10.0**-_DIGITS)
    if len(found) == 0:
        raise UserError(f"the cube has no level {axis} = {level:g}, where one of its two slices lies")
    return cube.isel({axis: int(found[0])}, drop=True)


def read_cube(path: Path) -> xr.Dataset:
    """A cube from netCDF (`.nc`, as `write_cube` makes it) or CSV (with `COLUMNS`)."""
    _check_suffix(path)
    try:
        return _read_csv(path) if path.suffix.lower() == ".csv" else _read_netcdf(path)
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{path} cannot be read as a cube ({reason}); give netCDF or CSV") from None


def write_cube(cube: xr.Dataset, path: Path) -> None:
    """Write a cube as netCDF (everything) or CSV (the six statistics, one row per grid point).

    A CSV has the mean over adaptations: what the trade-off point is found from.
    """
    _check_suffix(path)
    try:
        if path.suffix.lower() == ".csv":
            rows = over_adaptations(cube).to_dataframe().reset_index()[list(COLUMNS)]
            rows.sort_values(["weights", "zero_shot", "ssim"]).to_csv(path, index=False)
        else:
            cube.to_netcdf(path, engine="netcdf4", encoding=_encoding(cube))
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None


def _encoding(cube: xr.Dataset) -> dict[str, dict[str, Any]]:
    """How the variables of a cube are stored.

    With adaptations a cube has hundreds of networks, and ships: kappas of single classes are then rounded to
    four digits (their statistics are not), and shares of a class's few images are stored byte by byte.
    """
    found: dict[str, dict[str, Any]] = {str(name): {"zlib": True, "complevel": 6} for name in cube.data_vars}
    if ADAPTATION in cube.dims:
        for name in {"kappa_conflict", "kappa_cohen"} & found.keys():
            found[name] |= {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -(2**15)}
        for name in {"error", "training_error"} & found.keys():
            found[name] |= {"shuffle": False}
    return found


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() not in (".nc", ".csv"):
        raise UserError(f"{path} is neither .nc nor .csv; a cube is netCDF or CSV")


def _read_netcdf(path: Path) -> xr.Dataset:
    import xarray as xr

    if not path.is_file():
        raise FileNotFoundError
    try:
        cube = xr.load_dataset(path, engine="netcdf4")
    except FileNotFoundError:
        raise
    except Exception as problem:
        # The libraries below raise whatever their layer of a damaged file brings up.
        raise OSError(" ".join(str(problem).split())[:200]) from problem
    return check_cube(cube, str(path))


def _read_csv(path: Path) -> xr.Dataset:
    table, lines = _parse(path)
    # Levels are told apart by their rounded value and keep the first one written.
    axes, places = [], []
    for axis in AXES:
        column = table[:, COLUMNS.index(axis)]
        _, first, place = np.unique(np.round(column, _DIGITS), return_index=True, return_inverse=True)
        axes.append(column[first])
        places.append(place)
    shape = tuple(map(len, axes))
    cells = np.ravel_multi_index(tuple(places), shape)
    _, first, place = np.unique(cells, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[place] != np.arange(len(cells)))
    if len(repeated):
        row = repeated[0]
        point = _point(*(levels[p[row]] for levels, p in zip(axes, places, strict=True)))
        raise UserError(
            f"{path}: line {lines[row]} repeats the grid point of line {lines[first[place[row]]]} ({point}); "
            "keep one row per combination of ssim, zero_shot and weights"
        )
    missing = np.setdiff1d(np.arange(np.prod(shape)), cells)
    if len(missing):
        at = np.unravel_index(missing[0], shape)
        point = _point(*(levels[i] for levels, i in zip(axes, at, strict=True)))
        raise UserError(
            f"{path}: no row for {point} ({len(missing)} of {np.prod(shape)} grid points are missing); "
            "a cube needs every combination of its levels of ssim, zero_shot and weights"
        )
    statistics = {name: table[np.argsort(cells), COLUMNS.index(name)].reshape(shape) for name in STATISTICS}
    zero_shot, ssim, weights = axes
    return make_cube(statistics, zero_shot=zero_shot, ssim=ssim, weights=weights)


def _parse(path: Path) -> tuple[NDArray[np.float64], list[int]]:
    """(rows, COLUMNS) numbers of a CSV file, and the line of the file that each row ends on."""
    rows: list[list[float]] = []
    lines: list[int] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        header = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = header
        for column in COLUMNS:
            if column not in header:
                raise UserError(
                    f"{path}: line 1 has no column {column!r}; a cube has the columns {', '.join(COLUMNS)}"
                )
        for row in reader:
            lines.append(reader.line_num)
            where = f"{path}: line {reader.line_num}, column"
            rows.append([_value(row[column], column, where) for column in COLUMNS])
    if not rows:
        raise UserError(f"{path} has no rows below its header; give one per grid point")
    return np.array(rows), lines


def _value(text: str | None, column: str, where: str) -> float:
    try:
        value = float(text or "nan")
    except ValueError:
        raise UserError(f"{where} {column!r}: {text!r} is not a number") from None
    if not np.isfinite(value):
        raise UserError(f"{where} {column!r}: the value is {text or 'missing'}; write a finite number")
    if column in _RANGES and not _allowed(column, value):
        raise UserError(f"{where} {column!r}: {value:g} is not {_RANGES[column]}")
    return value
