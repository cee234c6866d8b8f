"""What the keys of a suite may hold, and the one sentence that says what is wrong with one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from genbench.errors import UserError

__all__ = [
    "Count", "Flag", "Forms", "NotNegative", "Positive", "Table", "Text", "Toml", "Whole", "check",
    "check_keys", "distinct", "integer", "known_keys", "one_of", "table",
]  # fmt: skip

Toml = Mapping[str, Any]
"""A suite's file or one of its tables, as TOML has it: anything, until a `Table` has read it."""
Forms = Mapping[str, Any]
"""Key to the type of its value, which Python has no type for."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a suite; its annotations say the types of its keys, their bounds and the words for both.

    An optional key that is not there is None.
    """

    @classmethod
    def types(cls) -> Forms:
        """Key to type, with its bounds."""
        return get_type_hints(cls, include_extras=True)

    @classmethod
    def read(cls, path: Path, content: Toml, name: str) -> Self:
        """The table `name` of a suite; a `UserError` if it is not as the annotations say."""
        found, types = table(path, content, name), cls.types()
        known_keys(path, name, found, types)
        check_keys(path, name, found, types, [f.name for f in msgspec.structs.fields(cls) if not f.required])
        return msgspec.convert(found, cls)

    def given(self) -> Toml:
        """What it says, as JSON values."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


def integer(least: int) -> Meta:
    """Of a whole number."""
    return Meta(ge=least, description=f"an integer of at least {least}")


def distinct(what: str) -> Meta:
    """Of a list; that its values differ is asked of every list."""
    return Meta(min_length=1, description=f"a list of different values, each {what}")


def one_of(names: Iterable[str]) -> Any:
    """The type of a word out of some that are known only when genbench runs."""
    return Literal[tuple(names)]


Text = Annotated[str, Meta(min_length=1, description="a text")]
Flag = Annotated[bool, Meta(description="true or false")]
Whole = Annotated[int, integer(0)]
Count = Annotated[int, integer(1)]
# Numbers are of two types, so that a whole one stays whole: keys of cells tell 1 from 1.0.
_positive = Meta(gt=0, description="a positive number")
Positive = Annotated[int, _positive] | Annotated[float, _positive]
_not_negative = Meta(ge=0, description="a number of at least 0")
NotNegative = Annotated[int, _not_negative] | Annotated[float, _not_negative]


def table(path: Path, content: Toml, name: str) -> Toml:
    """The table `name` of a suite."""
    found = content.get(name)
    if not isinstance(found, dict):
        raise UserError(f"{path} lacks the table [{name}]")
    return found


def known_keys(path: Path, table: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a key that means nothing, with the nearest that does."""
    from genbench.plugin.registry import unknown_name

    names = [_where(table, name) for name in known]
    for where in (_where(table, name) for name in found):
        if where not in names:
            raise UserError(f"{path}: {unknown_name('key', where, names, 'genbench suites')}")


def check_keys(path: Path, table: str, found: Toml, types: Forms, optional: Collection[str] = ()) -> None:
    """Refuse missing keys and wrong values."""
    for name, wanted in types.items():
        if name in found:
            check(path, _where(table, name), found[name], wanted)
        elif name not in optional:
            raise UserError(f"{path} lacks {_where(table, name)}, {_expected(wanted)}")


def check(path: Path, where: str, value: object, wanted: Any) -> None:
    """Refuse a wrong value."""
    try:
        accepted = _sound(msgspec.convert(value, wanted))
    except msgspec.ValidationError:
        accepted = False
    if not accepted:
        raise UserError(f"{path}: {where} = {value!r}, expected {_expected(wanted)}")


def _where(table: str, name: str) -> str:
    return f"{table}.{name}" if table else name


def _sound(value: object) -> bool:
    """What types cannot say: numbers are finite, and the values of a list differ."""
    if isinstance(value, list):
        return len(set(map(str, value))) == len(value) and all(map(_sound, value))
    return not isinstance(value, float) or math.isfinite(value)


def _expected(wanted: Any) -> str:
    """The words for a type; of a union those of its first part, as None comes last."""
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(map(repr, get_args(wanted)))
    marks = getattr(wanted, "__metadata__", None)
    return str(marks[0].description) if marks else _expected(get_args(wanted)[0])
