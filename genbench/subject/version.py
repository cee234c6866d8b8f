"""The code version of this room."""

from __future__ import annotations

__all__ = ["SUBJECT_VERSION"]

SUBJECT_VERSION = 2
"""Part of the key of every reading, because measures build on what a subject gives them."""
