"""Fills the template of a plugin package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from genbench.errors import UserError

__all__ = ["package_files", "write_files", "write_package"]

_TEMPLATE = Path(__file__).parent / "template"

_LAYOUT = {
    "pyproject.toml": "pyproject.toml.tmpl",
    "README.md": "README.md.tmpl",
    "src/genbench_@name@/__init__.py": "measure.py.tmpl",
    "tests/test_@name@.py": "test_measure.py.tmpl",
    ".github/workflows/test.yml": "workflow.yml.tmpl",
}


def package_files(name: str) -> dict[str, str]:
    """Relative path to text of every file of the package for measure `name`."""
    if not (name.isascii() and name.isidentifier() and name == name.lower() and not name.startswith("_")):
        raise UserError(
            f"{name!r} cannot name a measure; use lower-case letters, digits and underscores, as my_measure"
        )
    return {
        _filled(path, name): _filled((_TEMPLATE / template).read_text(encoding="utf-8"), name)
        for path, template in _LAYOUT.items()
    }


def _filled(text: str, name: str) -> str:
    return text.replace("@name@", name).replace("@dashed@", name.replace("_", "-"))


def write_package(name: str, target: Path) -> list[Path]:
    """Write the package into the new folder `target`; nothing is ever overwritten."""
    return write_files(package_files(name), target)


def write_files(files: Mapping[str, str], target: Path) -> list[Path]:
    """Write texts by relative path into the new folder `target`; nothing is ever overwritten."""
    if target.exists():
        raise UserError(f"{target} exists already; choose another folder with --into")
    written = []
    try:
        for path, text in files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            written.append(file)
    except OSError as problem:
        raise UserError(
            f"{target} cannot be written: {problem.strerror}; choose another folder with --into"
        ) from problem
    return written
