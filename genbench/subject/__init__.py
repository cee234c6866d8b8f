"""One trained network as a measure sees it: weights, initial weights, training data; no held-out data.

`Subject` is imported on first use: planning reads the version of this room and must not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genbench.subject.subject import Subject

__all__ = ["Subject"]


def __getattr__(name: str) -> object:
    if name != "Subject":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from genbench.subject.subject import Subject

    return Subject
