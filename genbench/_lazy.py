"""torch, imported when first used.

Built-in measures are listed by commands that must not pay for importing torch (two seconds), so their
modules write `from genbench._lazy import torch`. Type checkers see the real module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch:
        def __getattr__(self, name: str) -> object:
            return getattr(import_module("torch"), name)

    torch = _Torch()

__all__ = ["torch"]
