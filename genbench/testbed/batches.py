"""How many images go through a network at a time, where nothing is kept for a backward pass."""

from __future__ import annotations

from genbench.subject.inputs import Inputs

__all__ = ["BATCH", "fixed_batch"]

BATCH = 64
"""Images at a time."""
_VALUES = 2**22
"""Values of a forward pass, at most: 16 images of 224 pixels."""


def fixed_batch(images: Inputs) -> int:
    """Images in a forward pass: a function of their size alone, as another could change the last bit."""
    size = BATCH
    while size > 1 and size * images.shape[1:].numel() > _VALUES:
        size //= 2
    return size
