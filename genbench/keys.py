"""Content keys and seeds: both are hashes of what determines a result, never of order or workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["KEY_RECIPE", "Inputs", "canonical_json", "cell_key", "derive_seed", "file_hash", "text_hash"]

Inputs = Mapping[str, Any]
"""JSON values that determine a result and are hashed into its key; a step says of which type its own are."""

KEY_RECIPE = 1
"""Version of the recipe below. Raising it makes every store recompute everything: a test pins the keys."""


def canonical_json(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def text_hash(text: str) -> str:
    """sha256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cell_key(kind: str, inputs: Inputs) -> str:
    """sha256 over recipe version, kind of cell and everything that determines its result."""
    return text_hash(canonical_json({"recipe": KEY_RECIPE, "kind": kind, "inputs": dict(inputs)}))


def derive_seed(*parts: object) -> int:
    """A 63-bit seed that is a function of `parts` alone."""
    digest = hashlib.sha256(canonical_json(list(parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
