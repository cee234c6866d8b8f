"""Rooms and the arrows between them: none hidden in a string, and the picture in CONTRIBUTING.md is true.

The arrows of import statements are held by import-linter (`make lint`).
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from rooms import BEGIN, END, MANUAL, allowed, contract, drawn, modules, named_modules, picture, room

pytestmark = pytest.mark.xdist_group("code")  # whose trees are parsed once

NO_ROOMS = {"", "__main__", "testing"}
"""The public face: the package itself, its command and the fixture for authors."""


def test_no_arrow_is_hidden_in_a_string() -> None:
    wrong = [
        f"{importer} names {imported}"
        for importer, file in modules()
        for imported in sorted(named_modules(file.read_text()))
        if not allowed(importer, imported)
    ]
    assert wrong == []


def test_strings_that_name_modules_are_found() -> None:
    source = (
        '"""genbench.cli.run"""\nSTEP = "genbench.zoo.clip:load"\nrun(f"python -m genbench.engine.{x}")\n'
    )
    assert named_modules(source) == {"genbench.zoo.clip", "genbench.engine"}
    found = {name for _, file in modules() for name in named_modules(file.read_text())}
    assert {"genbench.engine.spawned", "genbench.testbed.steps", "genbench.plugin.builtin"} <= found


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("genbench.zoo.clip", "genbench.data.images", True),
        ("genbench.data.images", "genbench.zoo.clip", False),
        ("genbench.testbed.plan", "genbench.population.plan", False),
        ("genbench.testbed.plan", "genbench.testbed.steps", True),
        ("genbench.plugin.builtin", "genbench.testbed.degradations", True),
        ("genbench.plugin.registry", "genbench.testbed.degradations", False),
        ("genbench.plugin.offers", "genbench.zoo.loaded", True),
        ("genbench.plugin.offers", "genbench.zoo.clip", False),
        ("genbench", "genbench.subject", True),
    ],
)
def test_arrows_go_down(importer: str, imported: str, expected: bool) -> None:
    assert allowed(importer, imported) is expected


def test_what_plugins_hand_over_is_let_through_as_types_alone() -> None:
    code = (
        "import sys, genbench.plugin.registry, genbench.plugin.offers, genbench.plugin.contract\n"
        "print(*sorted(name for name in sys.modules if name.startswith('genbench.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    layers = contract()[0]
    (place,) = (number for number, layer in enumerate(layers) if "plugin" in layer)
    lowest = {name for layer in layers[place:] for name in layer}
    assert {room(name) for name in done.stdout.split()} <= lowest


def test_every_room_has_its_place() -> None:
    placed = {name for line in contract()[0] for name in line}
    assert {room(name) for name, _ in modules()} - placed == NO_ROOMS


def test_the_picture_in_the_manual_is_what_the_contracts_give() -> None:
    manual = MANUAL.read_text()
    assert manual.count(BEGIN) == manual.count(END) == 1
    assert manual == drawn(manual), "run: python tests/rooms.py"


def test_the_picture_has_a_line_with_a_sentence_for_every_room() -> None:
    lines = picture().split("```")[1].splitlines()[1:]
    assert [line[2:].split()[0] for line in lines[:3]] == ["cli", "api", "leaderboard"]
    assert {line[2:].split()[0] for line in lines} == {room(name) for name, _ in modules()} - NO_ROOMS
    for line in lines:
        assert line[0] in "↓ "
        assert line[-1] in ".?", "the first sentence of the docstring of its __init__.py"
