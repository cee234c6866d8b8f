"""A function of the user's own: where it lies, what stands for it in a key, and calling it in a worker.

Planning only looks at files. A function runs in workers alone, and what it changes there is put back.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from genbench.errors import UserError, described, one_line
from genbench.keys import canonical_json, file_hash, text_hash

__all__ = ["UserFunction", "call", "find_function", "hash_once", "users_code", "write_code"]

_FILE_NAME = re.compile(r"[\w./-]{1,200}\.\w{1,12}")
_LARGEST_COPY = 2**20
"""Bytes of a file, such as a configuration, that a copy of the code takes along."""


@dataclass(frozen=True)
class UserFunction:
    """A function in a file beside the suite, or in an installed package."""

    spec: str
    """As the suite names it: "mynets.py:build" or "package.module:function"."""
    file: str
    """Where it lies on this machine."""

    @property
    def name(self) -> str:
        """Of the function alone."""
        return self.spec.rpartition(":")[2]

    @property
    def module(self) -> str:
        """Of an installed package; empty for a file beside the suite."""
        found = self.spec.rpartition(":")[0]
        return "" if found.endswith(".py") else found

    def content(self) -> str:
        """Hash of what its result depends on, as far as files can tell.

        Of a file: itself, the files beside it that it imports, and those that its text names. Of a package:
        all of its code.
        """
        if self.module:
            home = Path(self.file)
            for _ in self.module.split(".")[1:]:
                home = home.parent
            home = home.parent if Path(self.file).name == "__init__.py" else home
            parts = sorted(home.rglob("*.py")) if home.is_dir() else [home]
            marks = [[str(part.relative_to(home)), hash_once(part)] for part in parts]
        else:
            marks = [[name, hash_once(part)] for name, part in _files(Path(self.file)).items()]
        return text_hash(canonical_json(marks))


def find_function(spec: str, where: str, suite: Path) -> UserFunction:
    """What `where` of the suite names, found without importing anything of it."""
    home, colon, name = spec.rpartition(":")
    if not colon or not home or not name.isidentifier():
        raise UserError(f"{suite}: {where} = {spec!r}, expected FILE.py:FUNCTION or package.module:FUNCTION")
    if home.endswith(".py"):
        file = suite.parent / home
        if not file.is_file():
            raise UserError(f"{suite}: {where} = {spec!r}, but there is no file {file}")
        return UserFunction(spec, str(file.resolve()))
    found = _module_file(home)
    if found is None:
        raise UserError(
            f"{suite}: {where} = {spec!r}, but no module {home!r} is installed; install it, "
            "or name a file that ends in .py"
        )
    return UserFunction(spec, str(found))


def _module_file(module: str) -> Path | None:
    # Only the outermost package: to look for a module below it, importlib would import the package.
    first, *more = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not more:
        return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None
    for folder in spec.submodule_search_locations or ():
        place = Path(folder).joinpath(*more)
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def hash_once(file: Path) -> str:
    """sha256 of a file; read once per process, as plans are made more than once."""
    found = file.stat()
    return _hashed(file, found.st_size, found.st_mtime_ns)


@cache
def _hashed(file: Path, size: int, changed: int) -> str:
    return file_hash(file)


# -- files ---------------------------------------------------------------------------------------------------


def _files(file: Path) -> dict[str, Path]:
    """The file, and whatever it or they import or name beside it; by name from its folder."""
    folder = file.parent
    found: dict[str, Path] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        name = one.relative_to(folder).as_posix() if one.is_relative_to(folder) else str(one)
        if name not in found:
            found[name] = one
            waiting += _mentioned(one, folder) if one.suffix == ".py" else []
    return dict(sorted(found.items()))


def _mentioned(file: Path, folder: Path) -> list[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []  # who runs it will be told
    found: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _modules(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else folder
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                found += _modules(base, [*parts, alias.name])
        elif isinstance(node, ast.Constant) and _names_file(node.value, folder):
            found.append(folder / str(node.value))
    return found


def _names_file(value: object, folder: Path) -> bool:
    return isinstance(value, str) and bool(_FILE_NAME.fullmatch(value)) and (folder / value).is_file()


def _modules(folder: Path, parts: list[str]) -> list[Path]:
    """The files of a dotted name and of the packages around it, as far as they lie below `folder`."""
    places = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    candidates = [p for place in places for p in (place.with_name(f"{place.name}.py"), place / "__init__.py")]
    return [p for p in candidates if p.is_file()]


def write_code(function: UserFunction, target: Path) -> None:
    """Copy what a function of a file needs into one archive, so that a cell holds all that it depends on."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, file in _files(Path(function.file)).items():
            inside = not Path(name).is_absolute() and ".." not in Path(name).parts
            if inside and (file.suffix == ".py" or file.stat().st_size <= _LARGEST_COPY):
                # Without the time of writing: the same code gives the same bytes.
                archive.writestr(zipfile.ZipInfo(name), file.read_bytes())


# -- in a worker ---------------------------------------------------------------------------------------------


@contextmanager
def users_code(function: UserFunction) -> Iterator[Callable[..., Any]]:
    """The function, loaded; what running it changes in this process is put back, but for imported modules.

    The process goes on to measure: threads, number formats and random numbers must be those that every other
    reading has.
    """
    import torch

    threads, dtype, path = torch.get_num_threads(), torch.get_default_dtype(), list(sys.path)
    deterministic = torch.get_deterministic_debug_mode()
    gradients = torch.is_grad_enabled()
    sys.path.insert(0, str(Path(function.file).parent))
    try:
        with torch.random.fork_rng(devices=[]):
            # Where a network draws what its weight file does not set, it is at least the same each time.
            torch.manual_seed(0)
            yield _loaded(function)
    finally:
        sys.path[:] = path
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_deterministic_debug_mode(deterministic)
        torch.set_grad_enabled(gradients)


def _loaded(function: UserFunction) -> Callable[..., Any]:
    from importlib import import_module

    from genbench.plugin.registry import load_file

    home, _, name = function.spec.rpartition(":")
    try:
        module = import_module(function.module) if function.module else load_file(Path(function.file))
    except (Exception, SystemExit) as problem:
        raise UserError(f"{home} cannot be imported: {_short(problem)}") from problem
    found = getattr(module, name, None)
    if not callable(found):
        raise UserError(f"{home} defines no function {name!r}; name one that it has")
    return found  # type: ignore[no-any-return]


def call(function: UserFunction, loaded: Callable[..., Any], given: Mapping[str, Any], whose: str) -> Any:
    """Call it; a `UserError` says what was called for whom, and what it raised."""
    try:
        return loaded(**given)
    except (Exception, SystemExit) as problem:
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        # A builder that does not know one of the columns is the commonest mistake of all.
        unexpected = isinstance(problem, TypeError) and "unexpected keyword" in str(problem)
        hint = "; have it take **others" if unexpected else ""
        raise UserError(
            f"{function.spec} gives no {whose}: {function.name}({one_line(shown, 60)}) raised "
            f"{_short(problem)}{hint}"
        ) from problem


def _short(problem: BaseException) -> str:
    return one_line(described(problem), 140)
