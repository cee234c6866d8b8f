"""Commands on a terminal of some width, in pytest's own process: what a person sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from pathlib import Path
from unittest import mock

from conftest import environment

__all__ = ["INTERVAL", "broken_lines", "on_terminal"]

INTERVAL = re.compile(r"\d\.\d+ – \d\.\d+")
_HALF = re.compile(r"(\d\.\d+ –\s*$)|(^\s*– \d)|(\d\.\d+ –\s{2,})")
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def on_terminal(*words: str | Path, columns: int, cwd: Path, store: Path | None = None) -> list[str]:
    """The lines that a command shows on a terminal of so many columns, without colours.

    A terminal breaks longer lines itself; here they stay whole, so that whoever asks sees them.
    """
    from genbench.cli import main

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    said: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # Linux says so when the other side has gone
            while data := os.read(parent, 65536):
                said.append(data)

    listener = threading.Thread(target=listen)
    listener.start()
    settings = {**environment(), "COLUMNS": str(columns), "TERM": "xterm-256color"}
    if store is not None:
        settings["GENBENCH_STORE"] = str(store)
    arguments = [str(word) for word in words]
    with contextlib.ExitStack() as stack:
        for name in ("stdout", "stderr"):
            shown = stack.enter_context(open(os.dup(child), "w", encoding="utf-8", buffering=1))
            stack.enter_context(mock.patch.object(sys, name, shown))
        os.close(child)
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(mock.patch.dict(os.environ, settings, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["genbench", *arguments]))
        stack.enter_context(mock.patch.object(os, "cpu_count", return_value=1))
        code: object = "the command never said that it ended"
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    listener.join()
    assert code == 0, b"".join(said).decode()
    os.close(parent)
    text = _CODES.sub("", b"".join(said).decode()).replace("\r\n", "\n")
    return [line.rpartition("\r")[2].rstrip() for line in text.split("\n")]


def broken_lines(lines: list[str], columns: int) -> list[str]:
    """Lines that are wider than the terminal, and halves of an interval."""
    return [line for line in lines if len(line) > columns or _HALF.search(line)]
