"""Asks a fresh process for answers: one JSON line to it, JSON lines back as they come."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TypeVar

import msgspec

__all__ = ["ProcessEnded", "answers_of"]


Answer = TypeVar("Answer")


class ProcessEnded(Exception):
    """The process ended with an exit code that says it failed."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def answers_of(module: str, form: type[Answer], request: msgspec.Struct | None = None) -> Iterator[Answer]:
    """What `python -m module PID`, with this process's PID, answers to `request`; each is a `form`.

    It has one thread, and must die with this process (`guard.die_with_parent`).

    Raises
    ------
    ProcessEnded
        After its last answer, if it failed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        process.stdin.close()
        for line in process.stdout:
            yield msgspec.json.decode(line, type=form)
    if process.returncode:
        raise ProcessEnded(process.returncode)
