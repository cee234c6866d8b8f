"""Cubes as tables, as a JSON document and as files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from msgspec import Struct

from genbench.display.names import short_count, short_name
from genbench.display.tables import Shown, print_table
from genbench.errors import UserError
from genbench.scoring.practical import SLICE_NAMES
from genbench.suites.evidence import Family
from genbench.testbed.cube import (
    ADAPTATION,
    AXES,
    DIMS,
    STATISTICS,
    marginals,
    over_adaptations,
    slices,
    write_cube,
)
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "check_export",
    "cube_record",
    "export_cubes",
    "grid_rows",
    "show_cube",
    "write_figures",
]

_SUFFIXES = (".nc", ".csv", ".xlsx")
_SHORT = {
    name: name.replace("_mean", " M").replace("_sd", " SD").replace("_p10", " P10") for name in STATISTICS
}


# -- on a terminal -----------------------------------------------------------------------------------


def show_cube(name: str, evidence: Family, resolved: Mapping[tuple[str, str], float], *, full: bool) -> None:
    """Models on clean images of seen classes and in both slices, the marginals, what can be told apart."""
    cube = evidence.cube
    mean = over_adaptations(cube)
    _show_models(name, mean)
    _show_slices(name, mean)
    _show_marginals(name, cube)
    if full:
        _show_grid(name, cube)
    if ADAPTATION in cube.dims:
        click.echo(f"{name}: {_adaptations(cube)}")
    if "achieved_ssim" in cube.coords:
        pairs = zip(cube["ssim"].values, cube["achieved_ssim"].values, strict=True)
        reached = ", ".join(f"{level:g}: {got:.4f}" for level, got in pairs)
        click.echo(f"{name}: mean SSIM reached at each level, {reached}")
    shares = ", ".join(f"{label} {_percent(resolved[name, key])}" for key, label in SLICE_NAMES.items())
    click.echo(f"{name}: pairs of models further apart than the Monte-Carlo noise, {shares}")
    point = evidence.trade_off
    click.echo(
        f"{name}: trade-off point at SSIM {point.ssim:.3f}, zero-shot share {point.zero_shot:.3f}, "
        f"{short_count(point.model_size)} weights; generalization bound "
        f"{point.generalization_bound:.3f}, diversity bound {point.diversity_bound:.3f}"
    )


def _adaptations(cube: xr.Dataset) -> str:
    """How many networks of each model the numbers are means of, and which were left out."""
    count = cube.sizes[ADAPTATION]
    failed = [
        f"{short_name(str(model))}/{own}"
        for model in cube["model"].values
        for own in cube[ADAPTATION].values
        if "converged" in cube.coords and not int(cube["converged"].sel(model=model, adaptation=own))
    ]
    left = f"; unconverged and left out: {', '.join(failed)}" if failed else ""
    return f"means over {count} adaptations of each model{left}"


def _show_models(name: str, cube: xr.Dataset) -> None:
    clean = cube[list(STATISTICS)].sel(zero_shot=0.0, ssim=1.0)
    rows = [
        {
            "model": short_name(str(model)),
            "weights": short_count(float(weights)),
            **{_SHORT[s]: f"{float(clean[s].sel(model=model)):.3f}" for s in STATISTICS},
        }
        for model, weights in zip(cube["model"].values, cube["weights"].values, strict=True)
    ]
    columns = ["model", "weights", *_SHORT.values()]
    print_table(columns, rows, title=f"{name}: clean images of the seen classes", right=columns[1:])


def _show_slices(name: str, cube: xr.Dataset) -> None:
    wanted = {
        f"{label} {short}": values[f"error_{statistic}"]
        for label, values in zip(("robust", "zero-shot"), slices(cube).values(), strict=True)
        for statistic, short in (("mean", "M"), ("sd", "SD"), ("p10", "P10"))
    }
    rows = [
        {
            "model": short_name(str(model)),
            **{column: f"{float(values.sel(model=model)):.3f}" for column, values in wanted.items()},
        }
        for model in cube["model"].values
    ]
    title = f"{name}: error in the two slices that measures are judged by"
    print_table(["model", *wanted], rows, title=title, right=list(wanted))


def _show_marginals(name: str, cube: xr.Dataset) -> None:
    rows = []
    curves = marginals(cube)
    labels = {"ssim": "SSIM", "zero_shot": "zero-shot", "weights": "weights"}
    for axis, label in labels.items():
        dim = dict(zip(AXES, DIMS, strict=True))[axis]
        for i, level in enumerate(cube[axis].values):
            text = short_count(float(level)) if axis == "weights" else f"{level:.3f}"
            values = {_SHORT[s]: f"{float(curves[dim][s][i]):.3f}" for s in STATISTICS}
            rows.append({"along": label, "level": text, **values})
    columns = ["along", "level", *_SHORT.values()]
    print_table(columns, rows, title=f"{name}: marginals, mean over the other two axes", right=columns[1:])


def _show_grid(name: str, cube: xr.Dataset) -> None:
    rows = [
        {
            "model": short_name(str(row["model"])),
            "zero-shot": f"{row['zero_shot']:.3f}",
            "SSIM": f"{row['ssim']:.2f}",
            **{_SHORT[s]: f"{row[s]:.3f}" for s in STATISTICS},
        }
        for row in grid_rows(cube)
    ]
    columns = ["model", "zero-shot", "SSIM", *_SHORT.values()]
    print_table(columns, rows, title=f"{name}: every grid point", right=columns[1:])


def _percent(share: float) -> str:
    return "none to compare" if np.isnan(share) else f"{100 * share:.0f} %"


# -- as JSON -----------------------------------------------------------------------------------------


Nested = float | str | None | list["Nested"]
"""An array as lists in lists; None where it has no number."""


class ClassArray(Struct, frozen=True):
    """Something known of every class."""

    dims: list[str]
    values: Nested


class CubeDocument(Struct, frozen=True, kw_only=True):
    """A cube as `genbench cube --json` has it."""

    family: str
    coordinates: dict[str, Nested]
    dims: list[str]
    """Of `statistics`."""
    statistics: dict[str, Nested]
    per_class: dict[str, ClassArray]
    marginals: dict[str, dict[str, Nested]]
    """By axis and statistic."""
    slices: dict[str, dict[str, Nested]]
    resolved: dict[str, float | None]
    """Slice to the share of pairs that differ by more than noise; None where there are no pairs."""
    trade_off: TradeOff
    provenance: dict[str, str | int | float]


def cube_record(name: str, evidence: Family, resolved: Mapping[tuple[str, str], float]) -> CubeDocument:
    """Everything a cube holds but its arrays over images; null where a class is not part of a cell."""
    cube = evidence.cube.drop_dims("image", errors="ignore")
    curves, both = marginals(cube), slices(cube)
    return CubeDocument(
        family=name,
        coordinates={str(key): _plain(cube[key]) for key in cube.coords},
        dims=[*DIMS, *([ADAPTATION] if ADAPTATION in cube.dims else [])],
        statistics={key: _plain(cube[key]) for key in STATISTICS},
        per_class={
            str(key): ClassArray(list(map(str, cube[key].dims)), _plain(cube[key]))
            for key in cube.data_vars
            if key not in STATISTICS
        },
        marginals={
            axis: {key: _plain(curves[dim][key]) for key in STATISTICS}
            for dim, axis in zip(DIMS, AXES, strict=True)
        },
        slices={key: {s: _plain(both[key][s]) for s in STATISTICS} for key in SLICE_NAMES},
        resolved={key: None if np.isnan(resolved[name, key]) else resolved[name, key] for key in SLICE_NAMES},
        trade_off=evidence.trade_off,
        provenance=dict(cube.attrs),
    )


def _plain(array: xr.DataArray) -> Nested:
    """As nested lists of what JSON knows; it has no NaN."""
    values = array.values
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        values = values.astype(object)
        values[~known] = None
    plain: Nested = values.tolist()
    return plain


# -- as files ----------------------------------------------------------------------------------------


def grid_rows(cube: xr.Dataset) -> list[dict[str, Shown]]:
    """One row per grid point: model, coordinates and the six statistics, means over adaptations."""
    extra = [key for key in ("unseen_classes", "achieved_ssim") if key in cube.coords]
    places = [range(cube.sizes[dim]) for dim in ("model", "zero_shot", "ssim")]
    mean = over_adaptations(cube)
    arrays = {key: mean[key].values for key in STATISTICS}
    rows = []
    for k, i, j in itertools.product(*places):
        at = {"zero_shot": i, "ssim": j, "model": k}
        row: dict[str, Shown] = {"model": str(cube["model"].values[k])}
        row |= {key: cube[key].values[at[str(cube[key].dims[0])]].item() for key in (*AXES, *extra)}
        row |= {key: array[i, j, k].item() for key, array in arrays.items()}
        rows.append(row)
    return rows


def check_export(path: Path) -> None:
    """Complain about a file that `export_cubes` could not write, before anything is computed."""
    if path.suffix.lower() not in _SUFFIXES:
        raise UserError(f"--export {path}: a cube is exported as .nc, .csv or .xlsx")
    if not path.parent.is_dir():
        raise UserError(f"--export {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"--export {path}: the folder {path.parent} cannot be written to")
    if path.suffix.lower() == ".xlsx":
        _need_openpyxl()


def export_cubes(families: Mapping[str, Family], path: Path) -> list[Path]:
    """Write cubes and return the files: a workbook has a sheet per family.

    netCDF and CSV hold one cube each, so that `genbench tradeoff --cube` can read them back; of several
    families each gets its own file, with the family in its name.
    """
    check_export(path)
    cubes = {name: family.cube for name, family in families.items()}
    if path.suffix.lower() == ".xlsx":
        _whole(path, lambda target: _write_workbook(cubes, target))
        return [path]
    written = []
    for name, cube in cubes.items():
        own = path if len(cubes) == 1 else path.with_name(f"{path.stem}-{_file_name(name)}{path.suffix}")
        _whole(own, lambda target, cube=cube: write_cube(cube, target))  # type: ignore[misc]
        written.append(own)
    return written


def _whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make the file, all of it or none."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(draft)
        draft.replace(path)
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None
    finally:
        draft.unlink(missing_ok=True)


def _need_openpyxl() -> None:
    from importlib.util import find_spec

    if find_spec("openpyxl") is None:
        raise UserError("--export to .xlsx needs openpyxl; run `pip install openpyxl`")


def _write_workbook(cubes: Mapping[str, xr.Dataset], path: Path) -> None:
    import pandas

    with pandas.ExcelWriter(path, engine="openpyxl") as book:
        for name, cube in cubes.items():
            sheet = _sheet_name(name, book.sheets)
            pandas.DataFrame(grid_rows(cube)).to_excel(
                book, sheet_name=sheet, index=False, freeze_panes=(1, 1)
            )
            book.sheets[sheet].column_dimensions["A"].width = 24


def _sheet_name(family: str, taken: Mapping[str, object]) -> str:
    """At most 31 characters, some of which Excel does not allow."""
    name = "".join("-" if c in r"[]:*?/\'" else c for c in family)[:31]
    count = 2
    while name in taken:
        name = f"{name[:28]} {count}"
        count += 1
    return name


def _file_name(family: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in family)


def write_figures(families: Mapping[str, Family], folder: Path) -> list[Path]:
    """Of every family: its marginals with the trade-off point, and heat maps of mean error and mean kappa."""
    from genbench.display.figures import write_png
    from genbench.testbed.cube_figures import heat_maps, marginal_figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"--figures {folder}: the folder cannot be made ({problem.strerror})") from None
    written = []
    for name, family in families.items():
        figures = {"marginals": marginal_figure(family.cube, family.trade_off)}
        for statistic in ("error_mean", "kappa_mean"):
            figures[statistic] = heat_maps(family.cube, statistic, family.trade_off)
        for what, figure in figures.items():
            path = folder / f"{_file_name(name)}-{what}.png"
            write_png(figure, path)
            written.append(path)
    return written
