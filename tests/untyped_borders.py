"""Finds values without a type that cross from one room into another: `dict[str, Any]`, `Mapping[str, Any]`.

A room hands out what is public in a module that another room imports, or names in a string as steps are; what
a package's `__init__` hands on; and classes that derive from a class of another room, which are called
through it. There the parameters and results of functions and methods, fields of classes and aliases of types
are looked at, however deep a dictionary lies in them. An alias counts where it is defined, wherever that is:
whoever uses it says what it means by its name.

    python tests/untyped_borders.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from rooms import modules, parsed, room

_MAPPINGS = {"dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"}
_ANYTHING = {"Any", "object"}
_NAMED = re.compile(r"\b(genbench(?:\.\w+)+)\b")


def sources() -> Mapping[str, ast.Module]:
    """Every module of genbench."""
    return {name: parsed(file.read_text()) for name, file in modules()}


def untyped_borders(trees: Mapping[str, ast.Module]) -> list[str]:
    """ "module:name: annotation" of everything untyped that crosses a border, once each."""
    crossing = _crossing(trees)
    found = []
    for module, tree in trees.items():
        foreign = _names_from_elsewhere(module, tree)
        for place, annotation in _public(tree, whole=module in crossing, foreign=foreign):
            if _untyped(annotation):
                found.append(f"{module}:{place}: {ast.unparse(annotation)}")
    return list(dict.fromkeys(found))


def count_everywhere(trees: Mapping[str, ast.Module]) -> int:
    """Dictionaries of anything in all annotations, borders or not."""
    return sum(_is_dictionary(node) for tree in trees.values() for node in ast.walk(tree))


# -- what crosses ------------------------------------------------------------------------------------


def _crossing(trees: Mapping[str, ast.Module]) -> set[str]:
    """Modules that another room imports or names, and those whose names such a package hands on."""
    imports: dict[str, set[str]] = {}
    found: set[str] = set()
    for importer, tree in trees.items():
        imports[importer] = set()
        prose: set[int] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=value):
                    prose.add(id(value))
                case ast.Constant(value=str() as text) if id(node) not in prose and "genbench." in text:
                    imports[importer] |= trees.keys() & set(_NAMED.findall(text))
                    # A step is called by the engine, wherever its name stands.
                    found |= trees.keys() & {text.partition(":")[0]} if ":" in text else set()
                case ast.Import(names=names):
                    imports[importer] |= trees.keys() & {alias.name for alias in names}
                case ast.ImportFrom(module=str() as module, names=names, level=0):
                    whole = {f"{module}.{alias.name}" for alias in names}
                    imports[importer] |= trees.keys() & {module, *whole}
    for importer, those in imports.items():
        found |= {imported for imported in those if room(imported) != room(importer)}
    for package in [name for name in found if any(other.startswith(f"{name}.") for other in trees)]:
        found |= {name for name in imports[package] if room(name) == room(package)}
    return {name for name in found if room(name)}


def _names_from_elsewhere(module: str, tree: ast.Module) -> set[str]:
    """What a module imports from other rooms where all can see it, as it calls it."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("genbench.")
        if room(node.module or "") != room(module)
        for alias in node.names
    }


# -- what is public ----------------------------------------------------------------------------------


def _public(tree: ast.Module, *, whole: bool, foreign: set[str]) -> Iterator[tuple[str, ast.expr]]:
    """Name and annotation of all that a module shows; without `whole`, of classes called through others."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if whole and _open(name):
                yield from _signature(name, node)
            case ast.ClassDef(name=name, bases=bases) if _open(name):
                if whole or foreign & {base.id for base in bases if isinstance(base, ast.Name)}:
                    yield from _class(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if whole and _open(name):
                yield name, annotation


def _class(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for part in node.body:
        match part:
            case ast.FunctionDef(name=name) if _open(name) or name in ("__init__", "__call__"):
                yield from _signature(f"{node.name}.{name}", part)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _open(name):
                yield f"{node.name}.{name}", annotation


def _signature(name: str, node: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    given = node.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        if one.annotation is not None:
            yield f"{name}({one.arg})", one.annotation
    if node.returns is not None:
        yield name, node.returns


def _open(name: str) -> bool:
    return not name.startswith("_")


# -- what is untyped ---------------------------------------------------------------------------------


def _untyped(annotation: ast.expr) -> bool:
    return any(_is_dictionary(node) for node in ast.walk(annotation))


def _is_dictionary(node: ast.AST) -> bool:
    """`dict[str, Any]` and its like; a dictionary of anything by any other name is one too."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[_, ast.Name(id=value)])) if (
            name in _MAPPINGS and value in _ANYTHING
        ):
            return True
    return False


if __name__ == "__main__":
    print(*untyped_borders(sources()), sep="\n")
    print(count_everywhere(sources()), "in all annotations")
