"""A step that does nothing, in a module of its own: workers import it, and fork with all that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def nothing(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> Mapping[str, Any]:
    return {}
