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
    check,
    check_table,
    choice,
    integer,
    known_keys,
    number,
    table,
)
from genbench.suites.suite import Suite

__all__ = ["PopulationSuite", "read_population"]

_DATA = {"dataset": TEXT, "train_size": integer(10), "seed": integer(0)}
_TRAIN = {
    "architecture": choice("nin"),
    "optimizer": choice("sgd", "adam"),
    "momentum": number("a number in [0, 1)", lambda v: 0 <= v < 1),
    "weight_decay": NOT_NEGATIVE,
    "batch_size": integer(1),
    "stop_cross_entropy": POSITIVE,
    "max_epochs": integer(1),
    "depth": integer(1),
    "width": integer(1),
    "learning_rate": POSITIVE,
    "seed": integer(0),
}


@dataclass(frozen=True)
class PopulationSuite(Suite):
    """Networks trained from scratch: one per combination of the grid."""

    data: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, in order: one network each."""
        return [
            dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())
        ]

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.points())


def read_population(path: Path, content: Mapping[str, Any], common: Mapping[str, Any]) -> PopulationSuite:
    """Check the tables [data], [train] and [grid]."""
    data = table(path, content, "data")
    known_keys(path, "data", data, _DATA)
    check_table(path, "data", data, _DATA)
    train, grid = table(path, content, "train"), table(path, content, "grid")
    known_keys(path, "train", train, _TRAIN)
    known_keys(path, "grid", grid, _TRAIN)
    for name, field_ in _TRAIN.items():
        if (name in train) == (name in grid):
            found = "both" if name in train else "neither"
            raise UserError(
                f"{path}: {name!r} must be in exactly one of [train] (one value) and [grid] (a list), "
                f"found in {found}"
            )
        if name in train:
            check(path, f"train.{name}", train[name], field_)
        else:
            values = grid[name]
            if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
                raise UserError(f"{path}: grid.{name} = {values!r}, expected a list of distinct values")
            for value in values:
                check(path, f"grid.{name}", value, field_)
    return PopulationSuite(
        **common, data=data, train=train, grid={name: tuple(values) for name, values in grid.items()}
    )
