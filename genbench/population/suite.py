"""Suites of networks trained from scratch over a grid of hyperparameters, or over a part of one: a design."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from genbench.engine.cells import Setting
from genbench.errors import UserError
from genbench.suites import fields
from genbench.suites.suite import Suite, SuiteFields

__all__ = [
    "CORRUPTION_NAMES", "DataTable", "DesignTable", "NetworkSettings", "PopulationSuite", "TrainTable",
    "read_population",
]  # fmt: skip

Corruption = Literal[
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness", "contrast", "pixelate", "jpeg", "elastic",
]  # fmt: skip
CORRUPTION_NAMES: tuple[str, ...] = get_args(Corruption)
"""Those of `genbench.data.corruptions`, which imports torch; a test compares the two."""

_share = Meta(ge=0, le=1, description="a number in [0, 1]")
Share = Annotated[int, _share] | Annotated[float, _share]
_below_one = Meta(ge=0, lt=1, description="a number in [0, 1)")
BelowOne = Annotated[int, _below_one] | Annotated[float, _below_one]
Severity = Annotated[int, Meta(ge=1, le=5)]


class DataTable(fields.Table, frozen=True):
    """Images that the networks are trained and judged on."""

    seed: fields.Whole
    classes: Annotated[int, fields.integer(2)] | None = None
    training_pool: Annotated[int, fields.integer(10)] | None = None
    heldout_size: Annotated[int, fields.integer(10)] | None = None
    corruptions: Annotated[list[Corruption], fields.distinct("the name of a corruption")] | None = None
    severities: Annotated[list[Severity], fields.distinct("an integer from 1 to 5")] | None = None
    shifted_images: Annotated[int, fields.integer(10)] | None = None
    by_severity: fields.Flag | None = None
    """Whether every severity is a truth of its own, gap_ood_severity1 to 5: the axis of 002's Table 2."""
    truth: Literal["gap", "ece"] | None = None
    """What measures are judged by: the gap, or the calibration error on held-out images."""
    # Settings of a network, as all of `TrainTable`: one value here, or several in [grid] or [design].
    dataset: fields.Text | None = None
    train_size: Annotated[int, fields.integer(10)] | None = None
    label_noise: Share | None = None
    heldout_domain: fields.Text | None = None


class TrainTable(fields.Table, frozen=True):
    """How a network is built and trained; None where grid or design say it, or nothing does."""

    architecture: Literal["nin", "fcn", "resnet", "simplecnn", "resnetv2"] | None = None
    optimizer: Literal["sgd", "adam", "rmsprop"] | None = None
    momentum: BelowOne | None = None
    weight_decay: fields.NotNegative | None = None
    batch_size: fields.Count | None = None
    stop: Literal["cross_entropy", "accuracy", "epochs"] | None = None
    stop_cross_entropy: fields.Positive | None = None
    max_epochs: fields.Count | None = None
    depth: fields.Count | None = None
    width: fields.Count | None = None
    learning_rate: fields.Positive | None = None
    seed: fields.Whole | None = None
    schedule: Literal["constant", "cosine"] | None = None
    dropout: BelowOne | None = None
    adaptive_rate: fields.Positive | None = None
    rounding: Literal["float16"] | None = None
    """What trained weights are rounded to before anything is measured on them, as a testbed's are: packs of
    many networks are half the size. The same for all networks of a suite."""


_DATA_AXES = ("dataset", "train_size", "label_noise", "heldout_domain")
_AXES = {
    **{name: ("data", kind) for name, kind in DataTable.types().items() if name in _DATA_AXES},
    **{name: ("train", kind) for name, kind in TrainTable.types().items() if name != "rounding"},
}
"""Setting of a network to the table that may hold it, and its type."""
_DEFAULTS: dict[str, Setting] = {
    "label_noise": 0.0, "heldout_domain": "", "stop": "cross_entropy", "schedule": "constant", "dropout": 0.0,
    "adaptive_rate": 1.0,
}  # fmt: skip


class NetworkSettings(Struct, frozen=True, kw_only=True):
    """Everything about one network, as `DataTable` and `TrainTable` say it; numbers as the file has them."""

    dataset: str
    train_size: int
    label_noise: int | float
    heldout_domain: str
    architecture: str
    optimizer: str
    momentum: int | float
    weight_decay: int | float
    batch_size: int
    stop: str
    stop_cross_entropy: int | float
    max_epochs: int
    depth: int
    width: int
    learning_rate: int | float
    seed: int
    schedule: str
    dropout: int | float
    adaptive_rate: int | float


class DesignTable(fields.Table, frozen=True):
    """A part of a grid too large to train: small grids, each crossed with all of [grid]."""

    subgrids: Annotated[list[fields.Toml], fields.distinct("a table of settings")]
    """Setting to one value or a list of several. All have the same settings; what two have in common is
    trained once."""


@dataclass(frozen=True, kw_only=True)
class PopulationSuite(Suite):
    """Networks trained from scratch: one per combination of the grid, or of the design and the grid."""

    kind = "population"

    data: DataTable
    train: TrainTable
    grid: Mapping[str, tuple[Setting, ...]]
    subgrids: tuple[Mapping[str, tuple[Setting, ...]], ...] = ()
    """Of the design; none where the networks are the whole grid."""

    @property
    def varied(self) -> list[str]:
        """Settings of the design and of the grid, in order."""
        return [*(self.subgrids[0] if self.subgrids else ()), *self.grid]

    def points(self) -> list[dict[str, Setting]]:
        """Every combination of the design's and the grid's values, in order: one network each."""
        found: dict[tuple[Setting, ...], None] = {}
        for subgrid in self.subgrids or ({},):
            found |= dict.fromkeys(itertools.product(*subgrid.values(), *self.grid.values()))
        return [dict(zip(self.varied, values, strict=True)) for values in found]

    def settings(self, point: Mapping[str, Setting]) -> NetworkSettings:
        """Everything about the network at a point, defaults included."""
        given = {**_DEFAULTS, **self.data.given(), **self.train.given(), **point}
        return NetworkSettings(**{name: given[name] for name in NetworkSettings.__struct_fields__})

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.points())

    def content(self) -> fields.Toml:
        """Everything that determines networks and gaps."""
        grid = _lists(self.grid)
        design = {"design": {"subgrids": list(map(_lists, self.subgrids))}} if self.subgrids else {}
        return {"data": self.data.given(), "train": self.train.given(), "grid": grid, **design}


def _lists(grid: Mapping[str, tuple[Setting, ...]]) -> dict[str, list[Setting]]:
    return {name: list(values) for name, values in grid.items()}


def read_population(path: Path, content: fields.Toml, common: SuiteFields) -> PopulationSuite:
    """Check the tables [data], [train], [grid] and, where there is one, [design]."""
    data, train = DataTable.read(path, content, "data"), TrainTable.read(path, content, "train")
    grid = _read_grid(path, "grid", fields.table(path, content, "grid"))
    subgrids = _read_design(path, content) if "design" in content else ()
    _check_axes(path, {"data": data.given(), "train": train.given()}, grid, subgrids)
    listed: dict[str, list[Setting]] = {}
    for name, values in itertools.chain(*(one.items() for one in (grid, *subgrids))):
        listed.setdefault(name, []).extend(values)
    _check_images(path, data, listed)
    _check_depths(path, {**train.given(), **listed})
    return PopulationSuite(**common, data=data, train=train, grid=grid, subgrids=subgrids)


def _read_grid(path: Path, where: str, grid: fields.Toml) -> dict[str, tuple[Setting, ...]]:
    """Setting to its values, each of them checked."""
    fields.known_keys(path, where, grid, _AXES)
    for axis, values in grid.items():
        if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
            raise UserError(f"{path}: {where}.{axis} = {values!r}, expected a list of distinct values")
        for value in values:
            fields.check(path, f"{where}.{axis}", value, _AXES[axis][1])
    return {axis: tuple(values) for axis, values in grid.items()}


def _read_design(path: Path, content: fields.Toml) -> tuple[dict[str, tuple[Setting, ...]], ...]:
    """Its subgrids, settings in the order of the first."""
    found: list[dict[str, tuple[Setting, ...]]] = []
    for number, subgrid in enumerate(DesignTable.read(path, content, "design").subgrids, start=1):
        listed = {axis: values if isinstance(values, list) else [values] for axis, values in subgrid.items()}
        one = _read_grid(path, f"design.subgrids[{number}]", listed)
        first = found[0] if found else one
        if not one or one.keys() != first.keys():
            different = ", ".join(sorted(one.keys() ^ first.keys())) or "none at all"
            raise UserError(
                f"{path}: design.subgrids[{number}] must have the same settings as the first, "
                f"and at least one; look at {different}"
            )
        found.append({axis: one[axis] for axis in first})
    return tuple(found)


def _check_axes(
    path: Path,
    tables: Mapping[str, fields.Toml],
    grid: fields.Toml,
    subgrids: Sequence[fields.Toml],
) -> None:
    """Every setting is in one place: its table, [grid] or [design]; one with a default may be in none."""
    design = subgrids[0] if subgrids else {}
    for axis, (name, _) in _AXES.items():
        places = {f"[{name}]": tables[name], "[grid]": grid, "[design]": design}
        found = [place for place, table in places.items() if axis in table]
        if len(found) > 1 or (not found and axis not in _DEFAULTS):
            raise UserError(
                f"{path}: {axis!r} must be in exactly one of [{name}] (one value), [grid] (a list) and "
                f"[design] (in every subgrid), found in {' and '.join(found) or 'none'}"
            )


def _check_depths(path: Path, given: fields.Toml) -> None:
    """Before anything is trained: a ResNetV2 has 6·n + 2 layers."""
    architectures, depths = (
        value if isinstance(value, list) else [value] for value in (given["architecture"], given["depth"])
    )
    wrong = [depth for depth in depths if depth < 8 or (depth - 2) % 6]
    if "resnetv2" in architectures and wrong:
        raise UserError(
            f"{path}: depth = {wrong[0]}, but a resnetv2 has 8, 14, 20, 26, 32, … layers: 6·n + 2"
        )


def _check_images(path: Path, data: DataTable, grid: fields.Toml) -> None:
    given, pool = {**data.given(), **grid}, data.training_pool
    for name in ("severities", "shifted_images", "by_severity"):
        if name in given and "corruptions" not in given:
            raise UserError(
                f"{path}: data.{name} says how images are corrupted, but there is no data.corruptions"
            )
    most = max(grid.get("train_size", [data.train_size]))
    if pool is not None and pool < most:
        raise UserError(
            f"{path}: data.training_pool = {pool} images are not enough for a train_size of {most}"
        )
    if pool is not None and "heldout_size" in given:
        raise UserError(f"{path}: data.training_pool and heldout_size exclude each other; drop one")
