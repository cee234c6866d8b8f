"""torch and numpy, and a package's public names, imported when first used.

Modules that are loaded by every listing (built-in measures, data sets) must not pay for importing torch or
numpy, so they write `from genbench._lazy import torch, np`. Type checkers see the real modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch as torch
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> object:
            return getattr(import_module(self._name), attribute)

    torch = _Module("torch")
    np = _Module("numpy")

__all__ = ["names_from", "np", "torch"]


def names_from(homes: Mapping[str, str], package: str) -> Callable[[str], object]:
    """The `__getattr__` of `package`, which takes each public name from the module that is its home."""

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
