"""Reads a suite and says, in one sentence with file and key, what is wrong with it."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genbench.errors import UserError
from genbench.registry import load_registry

__all__ = ["Suite", "load_suite", "read_suite"]


@dataclass(frozen=True)
class Suite:
    """A validated suite."""

    name: str
    summary: str
    kind: str
    path: Path
    data: Mapping[str, Any]
    train: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]]
    quick: bool = False
    """Whether this is the small subset that `--quick` runs."""
    quick_changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name as outputs show it."""
        return f"{self.name} (quick)" if self.quick else self.name

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, in order: one network each."""
        return [
            dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())
        ]


@dataclass(frozen=True)
class _Field:
    """What a key of a suite may hold."""

    expected: str
    accepts: Callable[[Any], bool]


def _integer(least: int) -> _Field:
    return _Field(f"an integer of at least {least}", lambda v: type(v) is int and v >= least)


def _number(expected: str, accepts: Callable[[float], bool]) -> _Field:
    return _Field(expected, lambda v: type(v) in (int, float) and math.isfinite(v) and accepts(float(v)))


def _choice(*names: str) -> _Field:
    return _Field("one of " + ", ".join(map(repr, names)), lambda v: v in names)


_TEXT = _Field("a text", lambda v: isinstance(v, str) and bool(v))
_POSITIVE = _number("a positive number", lambda v: v > 0)
_NOT_NEGATIVE = _number("a number of at least 0", lambda v: v >= 0)

_TOP = {"name": _TEXT, "summary": _TEXT, "kind": _choice("population")}
_DATA = {"dataset": _TEXT, "train_size": _integer(10), "seed": _integer(0)}
_TRAIN = {
    "architecture": _choice("nin"),
    "optimizer": _choice("sgd", "adam"),
    "momentum": _number("a number in [0, 1)", lambda v: 0 <= v < 1),
    "weight_decay": _NOT_NEGATIVE,
    "batch_size": _integer(1),
    "stop_cross_entropy": _POSITIVE,
    "max_epochs": _integer(1),
    "depth": _integer(1),
    "width": _integer(1),
    "learning_rate": _POSITIVE,
    "seed": _integer(0),
}


def load_suite(spec: str, *, quick: bool = False) -> Suite:
    """The suite called `spec`, or the one in the file `spec` if it ends in .toml."""
    if spec.endswith(".toml"):
        path = Path(spec)
        if not path.is_file():
            raise UserError(f"there is no suite file {path}; `genbench suites` lists the built-in ones")
    else:
        path = load_registry().get("suites", spec).item.path
    return read_suite(path, quick=quick)


def read_suite(path: Path, *, quick: bool = False) -> Suite:
    """Read and check the suite in `path`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from problem
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not valid TOML: it is not UTF-8 text") from problem
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from problem
    changes = _table(path, content, "quick") if "quick" in content else {}
    if quick:
        content = _merged(path, content, changes)
    _known(path, "", content, {*_TOP, "data", "train", "grid", "quick"})
    _checked(path, "", content, _TOP)
    data = _table(path, content, "data")
    _known(path, "data", data, _DATA)
    _checked(path, "data", data, _DATA)
    train, grid = _table(path, content, "train"), _table(path, content, "grid")
    _known(path, "train", train, _TRAIN)
    _known(path, "grid", grid, _TRAIN)
    for name, field_ in _TRAIN.items():
        if (name in train) == (name in grid):
            found = "both" if name in train else "neither"
            raise UserError(
                f"{path}: {name!r} must be in exactly one of [train] (one value) and [grid] (a list), "
                f"found in {found}"
            )
        if name in train:
            _check(path, f"train.{name}", train[name], field_)
        else:
            values = grid[name]
            if not isinstance(values, list) or not values or len(set(map(str, values))) < len(values):
                raise UserError(f"{path}: grid.{name} = {values!r}, expected a list of distinct values")
            for value in values:
                _check(path, f"grid.{name}", value, field_)
    return Suite(
        name=content["name"],
        summary=content["summary"],
        kind=content["kind"],
        path=path,
        data=data,
        train=train,
        grid={name: tuple(values) for name, values in grid.items()},
        quick=quick,
        quick_changes=changes,
    )


def _merged(path: Path, content: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    if not changes:
        raise UserError(f"{path} has no [quick] table, so this suite has no --quick subset")
    merged = dict(content)
    for table, values in changes.items():
        if not isinstance(values, dict) or not isinstance(content.get(table), dict):
            raise UserError(f"{path}: [quick.{table}] must be a table that changes values of [{table}]")
        merged[table] = {**content[table], **values}
    return merged


def _table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name)
    if not isinstance(table, dict):
        raise UserError(f"{path} lacks the table [{name}]")
    return table


def _known(path: Path, table: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
    from genbench.registry import unknown_name

    for name in found:
        if name not in known:
            where = f"{table}.{name}" if table else name
            sentence = unknown_name(
                "key", where, [f"{table}.{k}" if table else k for k in known], "genbench suites"
            )
            raise UserError(f"{path}: {sentence}")


def _checked(path: Path, table: str, found: Mapping[str, Any], fields: Mapping[str, _Field]) -> None:
    for name, field_ in fields.items():
        where = f"{table}.{name}" if table else name
        if name not in found:
            raise UserError(f"{path} lacks {where}, {field_.expected}")
        _check(path, where, found[name], field_)


def _check(path: Path, where: str, value: object, field_: _Field) -> None:
    if not field_.accepts(value):
        raise UserError(f"{path}: {where} = {value!r}, expected {field_.expected}")
