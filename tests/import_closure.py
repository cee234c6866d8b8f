"""Which code of genbench a module's results can depend on, read off the source without importing it.

The closure of some modules is everything reachable from them by

- import statements, at the top of a module or inside a function; `from package import module` is the module,
- texts that name a module: "genbench.a.b" or "genbench.a.b:function", as steps, loaders, worker processes and
  `import_module` are given them,
- texts that begin like modules: f"genbench.subject.{name}" or f"{__name__}.{name}" is every module there.

What stands under `if TYPE_CHECKING:` is never run and does not count.

Packages: importing genbench.a.b runs the `__init__` of genbench and of genbench.a. These count as modules of
the closure, since what they do when run may matter, but what they import in turn does not: no name of it
reaches the module that was asked for (otherwise every measure would depend on every other through the list in
genbench.measures). An `__init__` that is itself imported from (`from genbench.subject import Subject`) is
followed like any module. The files in `assets/` beside a package's modules count with that package.

The one cut is the composition root, `CUT`: what the registry finds by name has a version of its own.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

__all__ = ["CUT", "Module", "Sources", "read_sources", "shape", "stripped"]

PACKAGE = "genbench"
CUT = "genbench.plugin.builtin"


def shape(source: str | ast.Module) -> str:
    """Hash of the syntax tree of a source, without docstrings, comments and layout.

    Written out here, because `ast.dump` differs from one Python to the next.
    """
    tree = stripped(ast.parse(source)) if isinstance(source, str) else source
    return hashlib.sha256("".join(_text(tree)).encode()).hexdigest()[:16]


def stripped(tree: ast.Module) -> ast.Module:
    """The tree without docstrings, those of attributes included; changed in place."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [i for i in body if not (isinstance(i, ast.Expr) and isinstance(i.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _text(value: object) -> Iterator[str]:
    if isinstance(value, ast.Constant):
        yield f"{type(value.value).__name__}:{value.value!r}"
    elif isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name, part in ast.iter_fields(value):
            # Newer Pythons have more fields; where nothing is in them, the code is the same.
            if part is not None and part != []:
                yield f"{name}="
                yield from _text(part)
                yield ","
        yield ")"
    elif isinstance(value, list):
        yield "["
        for part in value:
            yield from _text(part)
            yield ","
        yield "]"
    else:
        yield repr(value)


@dataclass(frozen=True, eq=False)
class Module:
    """One module, as a stripped syntax tree."""

    name: str
    tree: ast.Module = field(repr=False)
    is_package: bool
    others: frozenset[str] = field(repr=False)
    """Names of all modules there are."""

    @cached_property
    def shape(self) -> str:
        """Hash of its code."""
        return shape(self.tree)

    @cached_property
    def uses(self) -> frozenset[str]:
        """Modules that it names."""
        found = _Uses(self)
        found.visit(self.tree)
        return frozenset(found.names)


@dataclass(frozen=True)
class Sources:
    """All modules of the package at one time."""

    modules: Mapping[str, Module]
    assets: Mapping[str, str]
    """Package to the hash of the files in its folder `assets`."""

    def with_module(self, name: str, tree: ast.Module) -> Sources:
        """The same with one module replaced."""
        changed = replace(self.modules[name], tree=tree)
        return replace(self, modules={**self.modules, name: changed})

    def closure(self, roots: Iterable[str]) -> frozenset[str]:
        """Names of all modules (and "package/assets") that `roots` can depend on."""
        followed: set[str] = set()
        waiting = [name for name in roots if name != CUT]
        while waiting:
            name = waiting.pop()
            if name not in followed:
                followed.add(name)
                waiting += self.modules[name].uses - followed - {CUT}
        passed = {package for name in followed for package in _packages(name)} - {CUT}
        files = {f"{name}/assets" for name in self.assets if name in passed | followed}
        return frozenset(followed | passed | files)

    def hash(self, name: str) -> str:
        """Of a member of a closure."""
        package, _, is_files = name.partition("/")
        return self.assets[package] if is_files else self.modules[name].shape


def read_sources(root: Path) -> Sources:
    """The package genbench in the folder `root`, without what is template or data."""
    files = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            is_package = parts[-1] == "__init__"
            files[".".join(parts[:-1] if is_package else parts)] = (path, is_package)
    names = frozenset(files)
    modules = {
        name: Module(name, stripped(ast.parse(path.read_text(encoding="utf-8"))), is_package, names)
        for name, (path, is_package) in files.items()
    }
    folders = {name: path.parent / "assets" for name, (path, is_package) in files.items() if is_package}
    assets = {name: _files_hash(folder) for name, folder in folders.items() if folder.is_dir()}
    return Sources(modules, assets)


@cache
def _files_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]


def _packages(name: str) -> Iterator[str]:
    """ "genbench.a.b" lies in genbench.a and in genbench."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


class _Uses(ast.NodeVisitor):
    """Collects the modules that a module names; see above."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known = module.others
        self.names: set[str] = set()

    def _add(self, name: str) -> None:
        """`name` or, where it goes on to something inside a module, that module."""
        while name and name not in self._known:
            name = name.rpartition(".")[0]
        if name:
            self.names.add(name)

    def visit_If(self, node: ast.If) -> None:
        last = node.test.attr if isinstance(node.test, ast.Attribute) else getattr(node.test, "id", "")
        for part in node.orelse if last == "TYPE_CHECKING" else [node.test, *node.body, *node.orelse]:
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            own = self._module.name.split(".")
            up = node.level - self._module.is_package
            base = ".".join([*own[: len(own) - up], *([base] if base else [])])
        for alias in node.names:
            self._add(f"{base}.{alias.name}")

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.startswith(f"{PACKAGE}."):
            name = node.value.partition(":")[0]
            if name in self._known:
                self.names.add(name)
            elif name.endswith("."):
                self._add_all(name)  # the beginning of "genbench.a." + name

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        beginning = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                beginning += str(part.value)
            elif isinstance(part, ast.FormattedValue) and getattr(part.value, "id", "") == "__name__":
                beginning += self._module.name
            else:
                break
        self._add_all(beginning)
        self.generic_visit(node)

    def _add_all(self, beginning: str) -> None:
        """Modules whose names begin so, if that says more than that they are genbench's."""
        if beginning.startswith(f"{PACKAGE}.") and beginning != f"{PACKAGE}.":
            self.names |= {name for name in self._known if name.startswith(beginning)}
