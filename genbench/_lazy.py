"""torch and numpy, imported when first used.

Modules that are loaded by every listing (built-in measures, data sets) must not pay for importing torch or
numpy, so they write `from genbench._lazy import torch, np`. Type checkers see the real modules.
"""

from __future__ import annotations

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

__all__ = ["np", "torch"]
