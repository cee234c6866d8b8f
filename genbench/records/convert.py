"""JSON values that anyone may have sent, as a type; or one sentence on what is wrong with them."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

__all__ = ["WrongShape", "convert"]

T = TypeVar("T")

_SENTENCES = (
    (r"Object missing required field `(.*)`", "'{0}' is a required property"),
    (r"Object contains unknown field `(.*)`", "'{0}' was unexpected"),
    (r"Expected `(.*)` matching regex (.*)", "{value} does not match {1}"),
    (r"Expected `(.*)` of length <= .*", "{value} is too long"),
    (r"Expected `(.*)`, got `.*`", "{value} is not of type '{0}'"),
    (r"Expected `.*` ([<>]=) (.*)", "{value} is not {0} {1}"),
    (r"Invalid enum value .*", "{value} is not one of the values allowed here"),
)
"""What msgspec says, and how a person reads it."""


class WrongShape(ValueError):
    """Values that are not of the type, with the place and what is wrong."""


def convert(values: Any, wanted: type[T]) -> T:
    """`values`, as JSON gives them, as `wanted`; nothing is coerced."""
    try:
        return msgspec.convert(values, wanted)
    except msgspec.ValidationError as problem:
        message, _, place = str(problem).partition(" - at `$")
        raise WrongShape(_sentence(message, values, place.rstrip("`"))) from None


def _sentence(message: str, values: Any, place: str) -> str:
    steps = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+|\.\.\.)\]", place)
    names = [name or index for name, index in steps]
    found = values
    for name in names:
        found = _inside(found, name)
    for pattern, sentence in _SENTENCES:
        if match := re.fullmatch(pattern, message, flags=re.DOTALL):
            message = sentence.format(*match.groups(), value=repr(found))
            break
    return f"{'.'.join(names) or 'the record'}: {_short(message)}"


def _inside(values: Any, name: str) -> Any:
    if isinstance(values, dict):
        return values.get(name, "a value")
    if isinstance(values, list) and name.isdigit() and int(name) < len(values):
        return values[int(name)]
    return values


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:120]} … {text[-70:]}"
