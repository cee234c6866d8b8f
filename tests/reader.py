"""A reader of README and manual, who types whatever a page says, in the order of the page.

All pages are read in pytest's own process and share one store: what a page tells its readers to compute, and
another page did too, is computed once. Each page has a folder of its own.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from conftest import environment, in_process

__all__ = ["Reader", "blocks", "cells", "commands"]

ROOT = Path(__file__).parents[1]
RUN = ("python", "sh", "console")
"""Languages of blocks that a reader types; the rest is only looked at."""
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<content>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w-]+\.py)\n")


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, content) of every block of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    return [(found["language"], found["content"]) for found in _BLOCK.finditer(text)]


def commands(content: str) -> list[str]:
    """The lines of a console, without their comments; a backslash joins one to the next."""
    lines = content.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


class Reader:
    """Somebody with an empty folder and a store."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.store = folder, store
        self.names: dict[str, Any] = {"__name__": "__main__"}
        """What the Python of the page has defined so far."""
        (folder / "leaderboards").symlink_to(ROOT / "leaderboards")

    def follow(self, page: Path) -> int:
        """Type all of a page; the number of its blocks that there were to type."""
        todo = [(language, content) for language, content in blocks(page) if language in RUN]
        for number, (language, content) in enumerate(todo):
            if language != "python":
                for line in commands(content):
                    self.type(line)
            elif named := _FILE.match(content):
                (self.folder / named["name"]).write_text(content, encoding="utf-8")
            else:
                with self._sitting():
                    exec(compile(content, f"{page.name}, block {number}", "exec"), self.names)
        return len(todo)

    def type(self, line: str) -> None:
        """One command; what it says goes where a `>` says."""
        words, target = shlex.split(line), ""
        if ">" in words:
            words, target = words[: words.index(">")], words[words.index(">") + 1]
        if words[0] == "python":
            said = subprocess.run(
                [sys.executable, *words[1:]], cwd=self.folder, capture_output=True, text=True, check=True
            )
        else:
            assert words[0] == "genbench", line
            if words[1] == "reproduce":
                # It computes a row anew where it has no store; this row the installed wheel just computed.
                words += ["--store", str(self.store)]
            said = in_process(*words[1:], cwd=self.folder, settings={"GENBENCH_STORE": str(self.store)})
            assert said.returncode == 0, f"{line}: {said.stderr[-3000:]}"
        if target:
            (self.folder / target).write_text(said.stdout, encoding="utf-8")

    def run_cell(self, code: str) -> Any:
        """One cell of a notebook; its last expression, which a notebook would show."""
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with self._sitting():
            exec(compile(tree, "cell", "exec"), self.names)
            if last is None:
                return None
            assert isinstance(last, ast.Expr)
            return eval(compile(ast.Expression(last.value), "cell", "eval"), self.names)

    @contextlib.contextmanager
    def _sitting(self) -> Iterator[None]:
        """At the folder, as a new user."""
        settings = {**environment(), "GENBENCH_STORE": str(self.store)}
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, settings, clear=True),
            mock.patch.object(os, "cpu_count", return_value=1),
        ):
            yield
