"""Finds the code of a step by its name, and gives it its inputs as the types that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from genbench.engine.cells import Result
from genbench.engine.store import read_manifest
from genbench.keys import Inputs

__all__ = ["load_named", "load_step", "read_result"]

Form = TypeVar("Form")
StepFunction = Callable[[Inputs, Mapping[str, Path], Path], Result]
"""(inputs, folders of the parents, folder for its files) -> small JSON result."""


def load_step(function: str, inputs: Inputs) -> StepFunction:
    """The function of a step, and in this process all that it needs, so that forked children have it.

    A step may say what its `inputs` are, a `msgspec.Struct`, and return another. A module with steps may
    define `warm(inputs)`, which imports what they would import each anew.
    """
    step = load_named(function)
    form = get_type_hints(step).get("inputs", Mapping)
    typed = isinstance(form, type) and issubclass(form, msgspec.Struct)
    given = msgspec.convert(inputs, form) if typed else inputs
    prepare = getattr(import_module(step.__module__), "warm", None)
    if prepare is not None:
        prepare(given)

    def run(_: Inputs, parents: Mapping[str, Path], out: Path) -> Result:
        result: Result = msgspec.to_builtins(step(given, parents, out))
        return result

    return run


def read_result(folder: Path, form: type[Form]) -> Form:
    """The small result of a cell that lies in `folder`."""
    return msgspec.convert(read_manifest(folder)["result"], form)


def load_named(name: str) -> Any:
    """What "package.module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
