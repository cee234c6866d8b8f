"""Everything of genbench that has a version, and the modules that its results are made by.

Nothing is listed here: steps are found in the code, what hooks offer by asking the registry, and the modules
behind both by closure (`import_closure`).

- A **step** is run by a worker: its modules are those of its function, of whatever plans its cells (which
  decides what stands in the key) and of the executors that start workers. The module that defines it says its
  version, `_VERSION`.
- The **reading** of a measure: the same, and every `loader` that a plan names, which makes a worker's network
  from stored files. Its version is SUBJECT_VERSION.
- A **measure**, **data set**, **backbone** or **degradation**: the modules of its functions; its own version.
- **keys**: how keys and seeds are derived; KEY_RECIPE.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib import import_module
from typing import Any

from import_closure import PACKAGE, Module, Sources
from version_samples import unit_name

from genbench.engine.cells import Step
from genbench.keys import KEY_RECIPE, cell_key
from genbench.plugin.registry import load_registry
from genbench.subject.version import SUBJECT_VERSION

__all__ = ["Unit", "VersionDocument", "closures", "find_units", "version_document"]

VersionDocument = dict[str, dict[str, Any]]
""" "modules": module to hash; "units": unit to its version and the hash of its closure."""


@dataclass(frozen=True)
class Unit:
    """A thing with a version."""

    name: str
    version: str
    roots: frozenset[str]
    """Modules whose closure makes its results."""


def version_document(sources: Sources, units: dict[str, Unit]) -> VersionDocument:
    """What is pinned: the version of every unit with the code it was given for."""
    found = closures(sources, units)
    return {
        "modules": {name: sources.hash(name) for name in sorted(frozenset().union(*found.values()))},
        "units": {
            name: {"version": unit.version, "closure": _digest(sources, found[name])}
            for name, unit in sorted(units.items())
        },
    }


def _digest(sources: Sources, members: frozenset[str]) -> str:
    text = "\n".join(f"{name} {sources.hash(name)}" for name in sorted(members))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def closures(sources: Sources, units: dict[str, Unit]) -> dict[str, frozenset[str]]:
    """Unit to everything that its results can depend on; many units have the same roots."""
    found = {roots: sources.closure(roots) for roots in {unit.roots for unit in units.values()}}
    return {name: found[unit.roots] for name, unit in units.items()}


def find_units(sources: Sources) -> dict[str, Unit]:
    """By name; `sources` are those of the genbench that is imported here."""
    found = [Unit("keys", str(KEY_RECIPE), frozenset({cell_key.__module__})), *_step_units(sources)]
    registry = load_registry()
    for kind in ("measures", "datasets", "backbones", "degradations"):
        for name, entry in getattr(registry, kind).items():
            if entry.source.kind == "built-in":
                found.append(Unit(unit_name(kind, name), str(entry.item.version), _homes(entry.item)))
    units = {unit.name: unit for unit in found}
    assert len(units) == len(found), "two steps have the same name"
    return units


def _homes(item: Any) -> frozenset[str]:
    """Modules of the functions in a record that a hook returned."""
    values = (getattr(item, field.name) for field in fields(item))
    homes = {_unwrapped(value).__module__ for value in values if callable(value)}
    return frozenset(home for home in homes if home.partition(".")[0] == PACKAGE)


def _unwrapped(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


# -- steps and readings -----------------------------------------------------------------------------------


def _step_units(sources: Sources) -> Iterator[Unit]:
    executors = load_registry().executors.values()
    workers = {home for entry in executors if entry.source.kind == "built-in" for home in _homes(entry.item)}
    for module in sources.modules.values():
        for constant, step in _step_constants(module):
            planners = _planners(sources, module.name, constant)
            if step.function:
                version = getattr(import_module(module.name), "_VERSION", None)
                assert version is not None, f"{module.name} defines steps; give it their version, _VERSION"
                roots = {step.function.partition(":")[0], *planners, *workers}
                yield Unit(f"step {step.name}", str(version), frozenset(roots))
            else:  # taken by the worker itself
                roots = {*planners, *workers, *_loaders(sources)}
                yield Unit(step.name, str(SUBJECT_VERSION), frozenset(roots))


def _step_constants(module: Module) -> Iterator[tuple[str, Step]]:
    """Steps that a module defines."""
    for name in _step_names(module) if module.name != Step.__module__ else ():
        step = getattr(import_module(module.name), name)
        assert isinstance(step, Step)
        yield name, step


@cache
def _step_names(module: Module) -> list[str]:
    made = [node for node in ast.walk(module.tree) if _called(node) == "Step"]
    constants = [
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign) and _called(node.value) == "Step"
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert len(made) == len(constants), f"{module.name}: a Step must be a constant, so that this finds it"
    return constants


def _planners(sources: Sources, home: str, constant: str) -> set[str]:
    """Where a step is defined, and every module that makes cells of it."""
    return {home} | {
        module.name
        for module in sources.modules.values()
        if home in module.uses and constant in _planned(module)
    }


@cache
def _planned(module: Module) -> frozenset[str]:
    """First arguments of a module's calls of make_cell."""
    calls = [node for node in ast.walk(module.tree) if _called(node) == "make_cell"]
    arguments = [call.args[0] for call in calls if isinstance(call, ast.Call) and call.args]
    return frozenset(_last_name(argument) for argument in arguments)


def _loaders(sources: Sources) -> set[str]:
    """Modules of the functions "package.module:function" that are given as `loader`."""
    found = {text.partition(":")[0] for module in sources.modules.values() for text in _loader_texts(module)}
    return found & sources.modules.keys()


@cache
def _loader_texts(module: Module) -> frozenset[str]:
    pairs: list[tuple[str, ast.AST | None]] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign):
            pairs += [(_last_name(target), node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            pairs.append((_last_name(node.target), node.value))
        elif isinstance(node, ast.keyword):
            pairs.append((node.arg or "", node.value))
        elif isinstance(node, ast.Dict):
            keys = (key.value if isinstance(key, ast.Constant) else "" for key in node.keys)
            pairs += zip(map(str, keys), node.values, strict=True)
        elif isinstance(node, ast.FunctionDef) and node.name == "loader":  # a property
            pairs += [("loader", part.value) for part in ast.walk(node) if isinstance(part, ast.Return)]
    given = [value for name, value in pairs if name == "loader"]
    texts = [part for value in given if value is not None for part in ast.walk(value)]
    named = {str(part.value) for part in texts if isinstance(part, ast.Constant)}
    return frozenset(text for text in named if ":" in text)


def _called(node: ast.AST) -> str:
    return _last_name(node.func) if isinstance(node, ast.Call) else ""


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
