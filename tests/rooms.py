"""The rooms of genbench and the arrows between them, as import-linter's contracts in pyproject.toml say.

    python tests/rooms.py

draws them anew in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
MANUAL = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms: made by `python tests/rooms.py` -->", "<!-- end of rooms -->"

_NAMED = re.compile(r"\bgenbench(?:\.\w+)+")


@cache
def contract() -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Rooms from top to bottom, those of one line together; (importer, imported) patterns let through."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (rooms,) = [found for found in settings["contracts"] if found["id"] == "rooms"]
    lines = [[name.strip(" ()") for name in line.split("|")] for line in rooms["layers"]]
    exceptions = [tuple(arrow.split(" -> ")) for arrow in rooms["ignore_imports"]]
    return lines, [(importer, imported) for importer, imported in exceptions]


def room(module: str) -> str:
    """ "genbench.zoo.mini.load" is in the room "zoo"; the package itself is in none."""
    return module.split(".")[1] if "." in module else ""


def allowed(importer: str, imported: str) -> bool:
    """Whether the contract lets one module import the other."""
    lines, exceptions = contract()
    height = {name: -number for number, line in enumerate(lines) for name in line}
    above, below = room(importer), room(imported)
    if above == below or above not in height or below not in height:
        return True  # the public face is no room
    return height[above] > height[below] or any(
        importer == source and fnmatchcase(imported, target.replace("**", "*"))
        for source, target in exceptions
    )


def modules(package: Path = ROOT / "genbench") -> Iterator[tuple[str, Path]]:
    """Name and file of every module."""
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


@cache
def parsed(source: str) -> ast.Module:
    """Its tree, which all who look at the code share; not to be changed."""
    return ast.parse(source)


def named_modules(source: str) -> set[str]:
    """Modules of genbench that string literals name, as "genbench.zoo.clip:load" does; not in docstrings."""
    tree = parsed(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        for name in _NAMED.findall(node.value)
    }


def summary(name: str) -> str:
    """The first sentence of a room's docstring."""
    place = ROOT / "genbench" / name
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = " ".join((ast.get_docstring(parsed(file.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.?]) ", text)[0]


def picture() -> str:
    """What stands in CONTRIBUTING.md: a line for every room that is there, then what is let through."""
    lines, exceptions = contract()
    present = {room(name) for name, _ in modules()}
    shown: list[str] = []
    for line in lines:
        there = [name for name in line if name in present]
        arrows = ["↓" if shown else " ", *" " * len(there)]
        shown += [f"{arrow} {name:<13} {summary(name)}" for arrow, name in zip(arrows, there, strict=False)]
    through: dict[str, list[str]] = {}
    for importer, imported in exceptions:
        through.setdefault(importer, []).append(f"`{imported}`")
    others = [f"- `{importer}` → {', '.join(names)}" for importer, names in through.items()]
    return "\n".join(["```text", *shown, "```", "", "Let through:", "", *others])


def drawn(manual: str) -> str:
    """The manual with the picture as it should be."""
    before, _, rest = manual.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{picture()}\n\n{END}{after}"


if __name__ == "__main__":
    MANUAL.write_text(drawn(MANUAL.read_text()))
