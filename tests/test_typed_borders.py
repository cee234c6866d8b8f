"""What crosses from one room into another has a type."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from functools import cache

import pytest
from untyped_borders import sources, untyped_borders

OPEN: dict[str, str] = {
    # What users and plugins name as they like.
    "genbench.suites.fields:Toml": "a suite's file, until its kind has read it; and what is hashed of it",
    "genbench.subject.subject:*hyperparameters*": "of a user's own network, passed to measures as they are",
    "genbench.subject.parts:*": "options of a part are the arguments of the function that computes it",
    "genbench.subject.part_messages:PartRequest.options": "the same, asked for",
    "genbench.engine.messages:PartWork.options": "the same, on their way to a worker",
    # What every step has a type of its own for, while it goes through the engine as JSON.
    "genbench.keys:Inputs": "of a cell: hashed into its key; the step converts them to its own type",
    "genbench.engine.cells:Result": "of a cell: stored; `read_result` converts it to the step's own type",
    "genbench.engine.cells:Told": "where a worker finds code and files; the step or the host converts it",
    # What anyone may have sent, or another standard defines.
    "genbench.records.write:RecordValues": "a record is hashed as it was sent, before it is converted",
    "genbench.records.record:Reading.detail": "what a measure said beside its number, in a record of anyone",
    "genbench.records.record:Record.sign_error": "converted to its kind's type once the suite is known",
    "genbench.records.schema:record_schema": "a JSON schema",
    "genbench.suites.fields:Forms": "types of fields, for which Python has no type",
}
"""What may cross untyped, and why."""


@cache
def borders() -> list[str]:
    return untyped_borders(sources())


def test_what_crosses_a_border_has_a_type() -> None:
    untyped = [one for one in borders() if not _reasons(one)]
    assert untyped == [], "give it a msgspec.Struct or a dataclass, or say here why it cannot have one"


def test_every_exception_is_needed() -> None:
    assert [name for name in OPEN if not any(name in _reasons(one) for one in borders())] == []


def _reasons(finding: str) -> list[str]:
    place = finding.partition(": ")[0]
    return [name for name in OPEN if fnmatchcase(place, name)]


BELOW = """
from collections.abc import Mapping
from typing import Any
from msgspec import Struct

Rows = list[dict[str, Any]]
_Hidden = Mapping[str, Any]

class Document(Struct):
    typed: dict[str, int]
    untyped: list[dict[str, Any]] | None
    _own: dict[str, Any]

    def content(self, given: Mapping[str, object], *, more: tuple[Mapping[str, Any], int]) -> str: ...
    def _private(self) -> dict[str, Any]: ...

class Base:
    def page(self) -> str: ...

def made(name: str) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    inside: dict[str, Any] = {}

def _made() -> dict[str, Any]: ...
"""
ABOVE = """
from genbench.scoring.below import Base

pytestmark = pytest.mark.xdist_group("code")  # whose trees are parsed once

class Page(Base):
    def page(self) -> dict[str, Any]: ...

class Own:
    def page(self) -> dict[str, Any]: ...
"""


@pytest.mark.parametrize(
    ("above", "crosses"),
    [
        ("from genbench.scoring.below import Document", True),
        ("import genbench.scoring.below", True),
        ("from genbench.scoring import below", True),
        ("def f():\n    from genbench.scoring.below import made", True),
        ("STEP = 'genbench.scoring.below:made'", True),
        ("", False),
    ],
)
def test_untyped_borders_are_found(above: str, crosses: bool) -> None:
    trees = {"genbench.scoring": "", "genbench.scoring.below": BELOW, "genbench.report.page": above}
    found = untyped_borders({name: ast.parse(text) for name, text in trees.items()})
    aliases = ["Rows", "_Hidden"]
    public = ["Document.untyped", "Document.content(given)", "Document.content(more)", "made"]
    wanted = [*aliases, *public] if crosses else aliases
    assert [one.partition(": ")[0].removeprefix("genbench.scoring.below:") for one in found] == wanted


def test_a_class_that_is_called_through_another_room_counts_and_its_neighbour_does_not() -> None:
    trees = {"genbench.scoring.below": BELOW, "genbench.report.page": ABOVE}
    found = untyped_borders({name: ast.parse(text) for name, text in trees.items()})
    assert [one for one in found if "report" in one] == ["genbench.report.page:Page.page: dict[str, Any]"]


def test_what_a_package_hands_on_counts() -> None:
    trees = {
        "genbench.scoring": "from genbench.scoring.below import made",
        "genbench.scoring.below": BELOW,
        "genbench.report.page": "from genbench.scoring import made",
    }
    found = untyped_borders({name: ast.parse(text) for name, text in trees.items()})
    assert "genbench.scoring.below:made: Iterator[Mapping[str, Mapping[str, Any]]]" in found
