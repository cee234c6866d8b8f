"""Suites of networks trained from scratch over a grid of hyperparameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genbench.errors import UserError
from genbench.suites.fields import (
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    Field,
    check,
    check_table,
    choice,
    distinct,
    integer,
    known_keys,
    number,
    optional,
    table,
)
from genbench.suites.suite import Suite

__all__ = ["CORRUPTION_NAMES", "PopulationSuite", "read_population"]

CORRUPTION_NAMES = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "motion_blur", "fog", "brightness",
    "contrast", "pixelate", "jpeg", "elastic",
)  # fmt: skip
"""Those of `genbench.data.corruptions`, which imports torch; a test compares the two."""

_SHARE = number("a number in [0, 1]", lambda v: 0 <= v <= 1)
_BELOW_ONE = number("a number in [0, 1)", lambda v: 0 <= v < 1)
_SEVERITY = Field("an integer from 1 to 5", lambda v: type(v) is int and 1 <= v <= 5)

_DATA = {
    "seed": integer(0),
    "classes": optional(integer(2)),
    "training_pool": optional(integer(10)),
    "heldout_size": optional(integer(10)),
    "corruptions": optional(distinct(choice(*CORRUPTION_NAMES), "the name of a corruption")),
    "severities": optional(distinct(_SEVERITY, "an integer from 1 to 5")),
    "shifted_images": optional(integer(10)),
}
# Each of these is one value in its table or a list in [grid].
_DATA_AXES = {
    "dataset": TEXT,
    "train_size": integer(10),
    "label_noise": optional(_SHARE),
    "heldout_domain": optional(TEXT),
}
_TRAIN = {
    "architecture": choice("nin", "fcn", "resnet"),
    "optimizer": choice("sgd", "adam", "rmsprop"),
    "momentum": _BELOW_ONE,
    "weight_decay": NOT_NEGATIVE,
    "batch_size": integer(1),
    "stop_cross_entropy": POSITIVE,
    "max_epochs": integer(1),
    "depth": integer(1),
    "width": integer(1),
    "learning_rate": POSITIVE,
    "seed": integer(0),
    "stop": optional(choice("cross_entropy", "accuracy", "epochs")),
    "schedule": optional(choice("constant", "cosine")),
    "dropout": optional(_BELOW_ONE),
    "adaptive_rate": optional(POSITIVE),
}
_DEFAULTS = {
    "label_noise": 0.0,
    "heldout_domain": "",
    "stop": "cross_entropy",
    "schedule": "constant",
    "dropout": 0.0,
    "adaptive_rate": 1.0,
}


@dataclass(frozen=True)
class PopulationSuite(Suite):
    """Networks trained from scratch: one per combination of the grid."""

    kind = "population"

    data: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, in order: one network each."""
        return [
            dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())
        ]

    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Everything about the network at a point, defaults included."""
        given = {**_DEFAULTS, **self.data, **self.train, **point}
        return {name: given[name] for name in (*_DATA_AXES, *_TRAIN)}

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.points())

    def content(self) -> dict[str, Any]:
        """Everything that determines networks and gaps."""
        grid = {name: list(values) for name, values in self.grid.items()}
        return {"data": dict(self.data), "train": dict(self.train), "grid": grid}


def read_population(path: Path, content: Mapping[str, Any], common: Mapping[str, Any]) -> PopulationSuite:
    """Check the tables [data], [train] and [grid]."""
    data, train, grid = (table(path, content, name) for name in ("data", "train", "grid"))
    known_keys(path, "data", data, [*_DATA, *_DATA_AXES])
    check_table(path, "data", data, _DATA)
    known_keys(path, "train", train, _TRAIN)
    known_keys(path, "grid", grid, [*_DATA_AXES, *_TRAIN])
    _check_axes(path, "data", data, grid, _DATA_AXES)
    _check_axes(path, "train", train, grid, _TRAIN)
    _check_shifts(path, data)
    _check_pool(path, data, grid)
    return PopulationSuite(
        **common,
        data=data,
        train=train,
        grid={name: tuple(values) for name, values in grid.items()},
    )


def _check_axes(
    path: Path, name: str, found: Mapping[str, Any], grid: Mapping[str, Any], axes: Mapping[str, Field]
) -> None:
    """Every axis is one value in the table `name` or a list in [grid]; an optional one may be in neither."""
    for axis, field_ in axes.items():
        if axis not in found and axis not in grid and not field_.required:
            continue
        if (axis in found) == (axis in grid):
            where = "both" if axis in found else "neither"
            raise UserError(
                f"{path}: {axis!r} must be in exactly one of [{name}] (one value) and [grid] (a list), "
                f"found in {where}"
            )
        if axis in found:
            check(path, f"{name}.{axis}", found[axis], field_)
            continue
        values = grid[axis]
        if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
            raise UserError(f"{path}: grid.{axis} = {values!r}, expected a list of distinct values")
        for value in values:
            check(path, f"grid.{axis}", value, field_)


def _check_pool(path: Path, data: Mapping[str, Any], grid: Mapping[str, Any]) -> None:
    pool = data.get("training_pool")
    sizes = grid.get("train_size", [data.get("train_size")])
    if pool is not None and pool < max(sizes):
        raise UserError(
            f"{path}: data.training_pool = {pool} images are not enough for a train_size of {max(sizes)}"
        )
    for other in ("heldout_domain", "heldout_size"):
        if pool is not None and (other in grid or data.get(other)):
            raise UserError(f"{path}: data.training_pool and {other} exclude each other; drop one")


def _check_shifts(path: Path, data: Mapping[str, Any]) -> None:
    for name in ("severities", "shifted_images"):
        if name in data and "corruptions" not in data:
            raise UserError(
                f"{path}: data.{name} says how images are corrupted, but there is no data.corruptions"
            )
