"""Docstrings as the manual shows them: types of parameters come from annotations, examples are code.

genbench writes `name : what it is` below `Parameters`, where numpydoc expects `name : type`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Docstrings", "rewritten"]

_PARAMETER = re.compile(r"^(?P<names>[\w*]+(?:, [\w*]+)*) : (?P<about>.*)$")


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """The same docstring, for the numpydoc parser and for Markdown."""
    lines: list[str] = []
    section = example = False
    for line in text.splitlines():
        prompt = line.startswith(">>>")
        if prompt and not example:
            lines += ["", "```pycon"]
        elif example and not line.strip():
            lines.append("```")
        example = prompt or (example and bool(line.strip()))
        if line.startswith("---") and lines and lines[-1].strip() in ("Parameters", "Returns"):
            section = lines[-1].strip() == "Parameters"
        found = _PARAMETER.match(line) if section else None
        lines += [line] if found is None else [found["names"], f"    {found['about']}"]
    return "\n".join([*lines, "```"] if example else lines)
