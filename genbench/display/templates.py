"""HTML templates: those of a room, and those that kinds of suites bring along."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.engine.cells import Cause
from genbench.engine.fixable import fixable
from genbench.engine.store import write_atomically
from genbench.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["shown_number", "template_environment", "write_page"]


def template_environment(package: str, kinds: Mapping[str, str]) -> Environment:
    """Templates of `package`, and below its name those of the package that each kind names, if it does.

    Everything is escaped, and a name that a template misspells is an error.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

    own = {kind: PackageLoader(home) for kind, home in kinds.items() if home}
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PrefixLoader(own)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_function"] = _dumps
    # Curves and maps keep their order.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    environment.filters["seconds"] = _shown_seconds
    environment.filters["short"] = shown_number
    return environment


def write_page(path: Path, text: str) -> None:
    """Write a page, all of it or none; its folder is made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as problem:
        known, said = fixable(problem), problem.strerror or str(problem)
        if known is not None and known.cause is Cause.DISK:
            said = "its disk is full; free some space and run the same command again: results are kept"
        raise UserError(f"{path} cannot be written: {said}") from None


def _dumps(value: object, **options: bool | tuple[str, str]) -> str:
    """JSON of what figures draw: structs, and values that JSON knows."""
    import json

    from msgspec import to_builtins

    return json.dumps(value, default=to_builtins, **options)  # type: ignore[arg-type]


def _shown_seconds(value: float) -> str:
    return "<0.01" if value < 0.005 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def shown_number(value: float | None) -> str:
    """A score: most are shares, some go to 100."""
    return "–" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
