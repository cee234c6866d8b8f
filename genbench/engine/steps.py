"""Finds the code of a step by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["load_named", "load_step"]

StepFunction = Callable[[Mapping[str, Any], Mapping[str, Path], Path], dict[str, Any]]
"""(inputs, folders of the parents, folder for its files) -> small JSON result."""


def load_step(function: str, inputs: Mapping[str, Any]) -> StepFunction:
    """The function of a step, and in this process all that it needs, so that forked children have it.

    A module with steps may define `warm(inputs)`, which imports what they would import each anew.
    """
    step: StepFunction = load_named(function)
    prepare = getattr(import_module(step.__module__), "warm", None)
    if prepare is not None:
        prepare(inputs)
    return step


def load_named(name: str) -> Any:
    """What "package.module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
