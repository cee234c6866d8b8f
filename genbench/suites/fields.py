"""What the keys of a suite may hold, and the one sentence that says what is wrong with one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genbench.errors import UserError

__all__ = [
    "FLAG",
    "NOT_NEGATIVE",
    "POSITIVE",
    "TEXT",
    "Field",
    "check",
    "check_table",
    "choice",
    "distinct",
    "integer",
    "known_keys",
    "number",
    "optional",
    "table",
]


@dataclass(frozen=True)
class Field:
    """What a key of a suite may hold."""

    expected: str
    accepts: Callable[[Any], bool]
    required: bool = True


def integer(least: int) -> Field:
    """A whole number."""
    return Field(f"an integer of at least {least}", lambda v: type(v) is int and v >= least)


def number(expected: str, accepts: Callable[[float], bool]) -> Field:
    """A finite number."""
    return Field(expected, lambda v: type(v) in (int, float) and math.isfinite(v) and accepts(float(v)))


def choice(*names: str) -> Field:
    """One of some words."""
    return Field("one of " + ", ".join(map(repr, names)), lambda v: v in names)


def distinct(of: Field, what: str) -> Field:
    """A list of different values, each as `of` wants it."""
    return Field(
        f"a list of different values, each {what}",
        lambda v: (
            isinstance(v, list) and bool(v) and len(set(map(str, v))) == len(v) and all(map(of.accepts, v))
        ),
    )


def optional(field: Field) -> Field:
    """The same, but the key may be missing."""
    return Field(field.expected, field.accepts, required=False)


TEXT = Field("a text", lambda v: isinstance(v, str) and bool(v))
FLAG = Field("true or false", lambda v: isinstance(v, bool))
POSITIVE = number("a positive number", lambda v: v > 0)
NOT_NEGATIVE = number("a number of at least 0", lambda v: v >= 0)


def table(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The table `name` of a suite."""
    found = content.get(name)
    if not isinstance(found, dict):
        raise UserError(f"{path} lacks the table [{name}]")
    return found


def known_keys(path: Path, table: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key that means nothing, with the nearest that does."""
    from genbench.plugin.registry import unknown_name

    for name in found:
        if name not in known:
            where = f"{table}.{name}" if table else name
            sentence = unknown_name(
                "key", where, [f"{table}.{k}" if table else k for k in known], "genbench suites"
            )
            raise UserError(f"{path}: {sentence}")


def check_table(path: Path, table: str, found: Mapping[str, Any], fields: Mapping[str, Field]) -> None:
    """Refuse missing keys and wrong values."""
    for name, field in fields.items():
        where = f"{table}.{name}" if table else name
        if name in found:
            check(path, where, found[name], field)
        elif field.required:
            raise UserError(f"{path} lacks {where}, {field.expected}")


def check(path: Path, where: str, value: object, field: Field) -> None:
    """Refuse a wrong value."""
    if not field.accepts(value):
        raise UserError(f"{path}: {where} = {value!r}, expected {field.expected}")
