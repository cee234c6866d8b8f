"""Writes an example of a collection: a suite of one's own networks that runs at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from genbench.authoring.package import write_files
from genbench.errors import UserError

__all__ = ["write_collection"]

_TEMPLATE = Path(__file__).parent / "template"
_LAYOUT = {
    "@name@.toml": "suite.toml.tmpl",
    "networks.py": "networks.py.tmpl",
    "make.py": "make.py.tmpl",
}


def write_collection(name: str, target: Path) -> list[Path]:
    """Write the example into the new folder `target`, and make its networks, in a second or two."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise UserError(f"{name!r} cannot name a collection; use letters, digits, - and _, as my-networks")
    texts = {path: (_TEMPLATE / template).read_text(encoding="utf-8") for path, template in _LAYOUT.items()}
    write_files({p.replace("@name@", name): t.replace("@name@", name) for p, t in texts.items()}, target)
    # Weights would be megabytes in the package; and who puts networks of their own here sees how it is done.
    made = subprocess.run([sys.executable, target / "make.py"], capture_output=True, text=True, check=False)
    if made.returncode:
        last = (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        raise UserError(f"{target / 'make.py'} could not make the example's networks: {last}")
    return sorted(file for file in target.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
