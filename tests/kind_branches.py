"""Finds code that decides by the kind of a suite, where it should ask the kind.

What counts is derived from the seam (`genbench.suites`) and from the rooms of the built-in kinds: their
names, their classes, the tables of their files and the parts of their packs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, nodes
from rooms import modules, parsed, room

from genbench.packs.manifest import Manifest
from genbench.plugin.registry import BUILT_IN, load_registry
from genbench.runs.plan import Plan
from genbench.suites.evidence import Evidence
from genbench.suites.kind import Kind, load_kind
from genbench.suites.pages import Pages
from genbench.suites.plan import EvidencePlan
from genbench.suites.result import Judged
from genbench.suites.suite import Suite

SEAM: dict[str, tuple[type, ...]] = {
    "suite": (Suite,),
    "kind": (Kind,),
    "evidence": (Evidence, EvidencePlan),
    "plan": (Plan, EvidencePlan),
    "plan_": (Plan, EvidencePlan),
    "pages": (Pages,),
    "judged": (Judged,),
}
"""What the seam's objects are called, and the types that say what everyone may ask them."""

COMPOSITION = "genbench.plugin.builtin"
COMMANDS = {
    "genbench.cli.cube": "testbed",
    "genbench.cli.tradeoff": "testbed",
    "genbench.cli.author": "collection",
}
"""Commands about one kind: they may name it and call its functions, and decide by it as little as others."""
ONLY_THERE = {"families", "resolved", "require_cubes"}
"""Asked by those commands alone: elsewhere "has it families?" would be "is it a testbed?"."""
DEFAULT = ("genbench.suites.suite", "_DEFAULT_KIND")
"""The one place that names a kind: what a file without the field `kind` is."""


@cache
def kinds() -> dict[str, Kind]:
    """The built-in kinds, by name."""
    found = load_registry().suite_kinds
    return {name: load_kind(name) for name, entry in found.items() if entry.source.kind == BUILT_IN}


@cache
def rooms_of_kinds() -> frozenset[str]:
    return frozenset(room(type(kind).__module__) for kind in kinds().values())


@cache
def classes_of_kinds() -> frozenset[str]:
    """Every class that is defined in the room of a kind."""
    return frozenset(
        node.name
        for name, file in modules()
        if room(name) in rooms_of_kinds()
        for node in ast.walk(parsed(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )


@cache
def parts_of_kinds() -> frozenset[str]:
    """Tables of suites and parts of packs that only some kinds have."""
    every = Manifest.__struct_fields__
    sets = [{*kind.tables, *kind.manifest.__struct_fields__}.difference(every) for kind in kinds().values()]
    return frozenset(set.union(*sets) - set.intersection(*sets))


@cache
def asked_of(name: str) -> frozenset[str]:
    """What everyone may ask of an object that is called `name`."""
    found: set[str] = set()
    for type_ in SEAM[name]:
        found |= {one for one in dir(type_) if not one.startswith("__")}
        found |= {one for base in type_.__mro__ for one in vars(base).get("__annotations__", {})}
        if is_dataclass(type_):
            found |= {field.name for field in fields(type_)}
    return frozenset(found)


def called(node: ast.AST) -> str:
    """The last word of a name: `evidence` of `self.board.evidence` and of `result.evidence()`."""
    if isinstance(node, ast.Call):
        return called(node.func)
    if isinstance(node, ast.Subscript):
        return called(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _words(*names: str) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")


def branches(source: str, module: str = "genbench.somewhere") -> list[str]:
    """One sentence with the line for everything in `source` that decides by the kind of a suite."""
    tree = parsed(source)
    found = sorted(set(_Finder(tree, module).problems()))
    return [f"{module}:{line}: {what}" for line, what in found]


class _Finder:
    def __init__(self, tree: ast.Module, module: str) -> None:
        self.tree, self.module = tree, module
        self.prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        own = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        self.elsewhere = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if not self._is_room(alias.name if isinstance(node, ast.Import) else node.module or "")
        }
        self.classes = classes_of_kinds() - set(own) - self.elsewhere
        self.default = {
            id(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and (module, called(node.targets[0])) == DEFAULT
        }

    def problems(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            for what in self._said(node):
                yield getattr(node, "lineno", 0), what

    def _said(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._imports(node)
            case ast.Constant(value=str() as text) if id(node) not in self.prose:
                yield from self._literal(text, node)
            case ast.Call():
                yield from self._call(node)
            case ast.Compare():
                yield from self._comparison(node)
            case ast.Match(subject=subject) if self._is_kind(subject):
                yield "matches a suite's kind"
            case ast.MatchClass(cls=cls) if self._is_class(cls):
                yield f"matches {called(cls)}"
            case ast.Subscript(slice=key) if self._is_kind(key):
                yield "looks a suite's kind up"
            case ast.Subscript(value=value, slice=ast.Constant(value=key)) if key in parts_of_kinds():
                if called(value) in ("manifest", "content"):
                    yield f"takes {key!r}, which only some kinds have"
            case ast.Attribute(value=value, attr=attr):
                yield from self._attribute(called(value), attr)
            case ast.Try(handlers=handlers, body=body):
                caught = {called(name) for handler in handlers for name in _parts(handler.type)}
                if "AttributeError" in caught and {*map(called, _inside(body))} & SEAM.keys():
                    yield "tries whether a suite's objects have something"

    # -- what it knows of kinds -------------------------------------------------------------------------

    def _is_room(self, name: str) -> bool:
        top, _, rest = name.partition(".")
        return top == "genbench" and rest.partition(".")[0] in rooms_of_kinds()

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        allowed = {COMMANDS.get(self.module, "")}
        for name in names:
            if self._is_room(name) and self.module != COMPOSITION and room(name) not in allowed:
                yield f"imports {name}"

    def _literal(self, text: str, node: ast.AST) -> Iterator[str]:
        if self.module == COMPOSITION or id(node) in self.default:
            return
        if text in kinds() and text != COMMANDS.get(self.module):
            yield f"names the kind {text!r}"
        if self._is_room(text.partition(":")[0]):
            yield f"names the module {text!r}"

    def _is_class(self, node: ast.AST) -> bool:
        """Whether an expression names a class of a kind; `nn.Something` is torch's, whatever its name."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return called(node) in self.classes and called(root) not in self.elsewhere

    # -- how it decides ---------------------------------------------------------------------------------

    def _is_kind(self, node: ast.AST) -> bool:
        """Whether an expression is the kind of a suite: its name, its object or its class."""
        match node:
            case ast.Attribute(attr="kind", value=value):
                return called(value).removeprefix("_").rpartition("_")[2] == "suite"
            case ast.Attribute(attr="__class__", value=value):
                return called(value) in SEAM
            case ast.Call(func=ast.Name(id="type"), args=[value]):
                return called(value) in SEAM
            case ast.Call(func=function):
                return called(function) in ("kind_of", "load_kind")
            case ast.Attribute(attr="__name__", value=value):
                return self._is_kind(value)
            case ast.Name(id=name):
                return name == DEFAULT[1]
        return False

    def _comparison(self, node: ast.Compare) -> Iterator[str]:
        sides = [node.left, *node.comparators]
        if any(self._is_kind(part) for side in sides for part in _parts(side)):
            yield "compares a suite's kind"
        for text in _texts(*sides):
            if _words(*kinds()).search(text):
                yield f"compares with {text!r}"
            if text in self.classes:
                yield f"compares with the name of the class {text}"
        if any(self._is_class(part) for side in sides for part in _parts(side)):
            yield "compares with a class of a kind"
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            key, where = node.left, called(node.comparators[0])
            if where == "manifest" or (where == "content" and {*_texts(key)} & parts_of_kinds()):
                yield f"asks whether {ast.unparse(key)} is in {where}"

    def _call(self, node: ast.Call) -> Iterator[str]:
        name = called(node.func)
        first = called(node.args[0]) if node.args else ""
        if name in ("isinstance", "issubclass") and len(node.args) == 2:
            bases = {base.__name__ for known in SEAM.values() for base in known}
            for one in _parts(node.args[1]):
                if self._is_class(one) or (first in SEAM and called(one) not in bases):
                    yield f"asks whether {first} is a {called(one)}"
        if name in ("hasattr", "getattr") and first in (*SEAM, "manifest"):
            yield f"asks whether {first} has something"
        if name in ("vars", "dir") and first in SEAM:
            yield f"looks into {first}"
        if name in ("get", "pop", "setdefault") and any(map(self._is_kind, node.args[:1])):
            yield "looks a suite's kind up"
        if name in ("startswith", "endswith", "__eq__", "match", "search", "fullmatch"):
            for text in _texts(*node.args):
                if _words(*kinds()).search(text):
                    yield f"compares with {text!r}"
        if name == "get" and isinstance(node.func, ast.Attribute) and called(node.func.value) == "manifest":
            yield "asks whether something is in manifest"

    def _attribute(self, owner: str, attr: str) -> Iterator[str]:
        if owner in SEAM and attr not in asked_of(owner) and not hasattr(str, attr):
            yield f"asks {owner} for {attr}, which not every kind has"
        if owner == "manifest" and attr in parts_of_kinds():
            yield f"takes {attr}, which only some kinds have"
        if attr in ONLY_THERE and owner not in ("self", "") and self.module not in COMMANDS:
            yield f"asks {owner} for {attr}"


def _inside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        yield from ast.walk(statement)


def _parts(node: ast.AST | None) -> list[ast.AST]:
    """The members of a tuple, list, set or union; anything else is its own."""
    match node:
        case None:
            return []
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            return [part for one in elts for part in _parts(one)]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_parts(left), *_parts(right)]
    return [node]


def _texts(*found: ast.AST) -> list[str]:
    return [
        part.value
        for node in found
        for part in _parts(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


# -- templates ---------------------------------------------------------------------------------------


def template_branches(source: str) -> list[str]:
    """The same for a Jinja template."""
    tree = Environment().parse(source)
    found = [
        f"{node.lineno}: includes {text!r}, which belongs to a kind"
        for node in tree.find_all((nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport))
        for text in _constants(node)
        if _words(*kinds()).search(text)
    ]
    for test in _tests(tree):
        attributes = {one.attr for one in _all(test, nodes.Getattr)}
        inside = [*attributes, *(one.name for one in _all(test, nodes.Name)), *_constants(test)]
        if any(_words(*kinds()).search(text) for text in inside) or attributes & {"kind", *ONLY_THERE}:
            found.append(f"{test.lineno}: decides by a kind")
        if any(one.name in ("defined", "undefined") for one in _all(test, nodes.Test)):
            found.append(f"{test.lineno}: asks whether a kind has something")
    return found


def _all(node: nodes.Node, wanted: type[Any]) -> list[Any]:
    """Of a type, the node itself included."""
    return [*([node] if isinstance(node, wanted) else []), *node.find_all(wanted)]


def _constants(node: nodes.Node) -> list[str]:
    return [str(one.value) for one in _all(node, nodes.Const)]


def _tests(tree: nodes.Node) -> Iterator[nodes.Node]:
    """What a template decides by: if, elif, the inline if, a filtered loop, and any comparison."""
    for node in tree.find_all((nodes.If, nodes.CondExpr, nodes.For)):
        if node.test is not None:
            yield node.test
    yield from tree.find_all(nodes.Compare)
