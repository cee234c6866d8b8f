"""A submitted plugin as it lies in the tree: who it is and what it holds, without running a line of it.

Name, version, package and source hash of a row come from here, never from what was submitted beside it.
Nothing is built: a build may run code of the plugin's own, with the rights of whoever builds it. The package
is copied, and three lines of metadata make genbench find it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
from msgspec import Meta

from genbench.errors import UserError
from genbench.plugin.hookspecs import ENTRY_POINT_GROUP
from genbench.plugin.registry import load_registry
from genbench.plugin.source import package_hash

__all__ = ["PluginTree", "installed", "read_tree"]

_FOLDER = "genbench-[a-z0-9]+(-[a-z0-9]+)*"
"""Of a plugin: the prefix keeps its package from standing in the way of any other."""
_LARGEST = 2**20
"""Bytes of one of its files."""
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+\Z")]
_Module = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.]+(:[A-Za-z0-9_.]+)?\Z")]
"""Of an entry point: what can be written into a file of such without becoming another line."""


class _Project(msgspec.Struct, rename="kebab"):
    name: str
    version: Annotated[str, Meta(pattern="^[0-9][0-9A-Za-z.+!-]{0,50}$")]
    dependencies: list[str] = []
    entry_points: dict[_Name, dict[_Name, _Module]] = {}


class _Content(msgspec.Struct):
    project: _Project


@dataclass(frozen=True)
class PluginTree:
    """What a folder of `plugins/` says of itself."""

    folder: Path
    distribution: str
    version: str
    plugins: Mapping[str, str]
    """Entry points: name to module."""
    dependencies: tuple[str, ...]
    package: Path
    """The folder of its code."""

    def __str__(self) -> str:
        return f"plugins/{self.folder.name}"

    @cached_property
    def sha256(self) -> str:
        """Of its source code, as records of its measures have it."""
        return package_hash(self.package / "__init__.py")

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name and text in its code: a measure that it offers is among them."""
        found: set[str] = set()
        for file in self.package.rglob("*.py"):
            try:
                parsed = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError, RecursionError):
                raise UserError(f"{file} is no Python") from None
            for node in ast.walk(parsed):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    found.add(node.name)
                elif isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
        return frozenset(found)


def read_tree(folder: Path) -> PluginTree:
    """The plugin in `folder`; a `UserError` for one that nobody can tell without running it."""
    folder = folder.resolve()
    if not re.fullmatch(_FOLDER, folder.name):
        raise UserError(f"{folder.name!r} is no folder of a plugin; call it genbench-NAME")
    _require_plain_files(folder)
    project = _project(folder / "pyproject.toml")
    if _normal(project.name) != folder.name:
        raise UserError(
            f"plugins/{folder.name} says that it is {project.name!r}; a plugin has the name of its folder, "
            "so that none can speak for another"
        )
    plugins = project.entry_points.get(ENTRY_POINT_GROUP, {})
    if not plugins:
        raise UserError(f"plugins/{folder.name} has no [project.entry-points.{ENTRY_POINT_GROUP}]")
    top = folder.name.replace("-", "_")
    for module in plugins.values():
        if module.partition(":")[0].partition(".")[0] != top:
            raise UserError(
                f"plugins/{folder.name} names the module {module!r}, which is not in its package {top}"
            )
    package = next((one for one in (folder / "src" / top, folder / top) if one.is_dir()), None)
    if package is None or not (package / "__init__.py").is_file():
        raise UserError(f"plugins/{folder.name} has no package src/{top} with an __init__.py")
    for file in package.rglob("*"):
        if file.parent.name == "__pycache__":
            continue  # what Python wrote beside it; it is not copied, so it is not run
        if file.is_file() and file.suffix != ".py" and file.name != "py.typed":
            raise UserError(f"{file} is no Python; the source hash of a row covers Python files alone")
    return PluginTree(folder, project.name, project.version, plugins, tuple(project.dependencies), package)


def _require_plain_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise UserError(f"{path} is a link; the folder of a plugin holds plain files")
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise UserError(f"{path} has more than {_LARGEST} bytes; a submitted plugin is source code")


def _project(path: Path) -> _Project:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(found, _Content).project
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as problem:
        raise UserError(
            f"{path} does not say name, version and entry points in plain words: {problem}"
        ) from None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@contextlib.contextmanager
def installed(tree: PluginTree) -> Iterator[None]:
    """Let this process and its children find the plugin of `tree`, in place of any of that name.

    What it needs must be here already: one that a stranger names is installed by a person or not at all.
    """
    for need in tree.dependencies:
        name = re.match(r"[A-Za-z0-9._-]+", need)
        try:
            if name is None or name.group() != "genbench":
                distribution(name.group() if name else need)
        except (PackageNotFoundError, ValueError):
            raise UserError(
                f"{tree} needs {need!r}, which is not installed here; a maintainer adds it to "
                "constraints.txt first"
            ) from None
    path, searched = os.environ.get("PYTHONPATH"), list(sys.path)
    with TemporaryDirectory(prefix="genbench-plugin-") as folder:
        _copy(tree, Path(folder))
        sys.path.insert(1, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([path] if path else [])])
        load_registry.cache_clear()
        try:
            yield
        finally:
            sys.path[:] = searched
            if path is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = path
            load_registry.cache_clear()


def _copy(tree: PluginTree, folder: Path) -> None:
    for file in sorted(tree.package.rglob("*.py")):
        target = folder / tree.package.name / file.relative_to(tree.package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    about = folder / f"{tree.distribution.replace('-', '_')}-{tree.version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {tree.distribution}\nVersion: {tree.version}\n", encoding="utf-8"
    )
    points = "".join(f"{name} = {module}\n" for name, module in tree.plugins.items())
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{points}", encoding="utf-8")
