"""Runs a command on a terminal and saves what it finally showed as an SVG picture, for the README.

python -m genbench.report.picture .github/run.svg genbench run --measure path_norm
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["main"]

_COLUMNS = 96


def main(target: Path, command: list[str]) -> None:
    """Write the picture of `command` to `target`."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(_settled(_shown(command))))
    picture = console.export_svg(title=" ".join(command[:2]))
    # The exporter refers to a font on the web; a picture in a repository should ask nobody for anything.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    picture = picture.replace("Fira Code, monospace", "monospace")
    picture = picture.replace("<svg ", '<svg xml:space="preserve" ', 1)  # or indented lines lose their indent
    target.write_text(picture, encoding="utf-8")


def _shown(command: list[str]) -> str:
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS), "LINES": "60"}
    process = subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=environment)
    os.close(child)
    shown = b""
    try:
        while data := os.read(parent, 1 << 16):
            shown += data
    except OSError:
        pass  # how Linux says that the other side has gone
    process.wait()
    return shown.decode()


def _settled(stream: str) -> str:
    """The lines left on the screen: a progress display that was redrawn shows only its last state."""
    lines: list[str] = [""]
    for line in stream.replace("\r\n", "\n").split("\n"):
        # Redrawing goes up a line (ESC [1A) and clears it (ESC [2K), once per line of the display.
        ups = line.count("\x1b[1A")
        rest = line.rpartition("\x1b[2K")[2] if "\x1b[2K" in line else line
        rest = rest.rpartition("\r")[2].replace("\x1b[?25l", "").replace("\x1b[?25h", "")
        if ups:
            lines = [*lines[: max(1, len(lines) - 1 - ups)], rest]
        else:
            lines[-1] += rest
        lines.append("")
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
