"""What a plugin offers, asked of a sealed process: this one never imports a plugin to find out.

An import that hangs, exits, crashes, prints or patches what it finds hurts the process that was asked and no
other. Answers are kept in the user's cache under a hash of the plugin's files, so that a plugin is imported
once after each change; a failure is never kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import msgspec

from genbench.errors import one_line, printable
from genbench.plugin.source import Source, module_file
from genbench.sealing.seal import missing

__all__ = ["Description", "Offered", "describe", "plugin_files"]

_SECONDS = 30.0
"""For a plugin to be imported and asked."""
_LARGEST = 1 << 22
"""Bytes of an answer."""
_LONGEST = 20_000
"""Characters of a docstring."""


class Offered(msgspec.Struct, frozen=True):
    """One thing that a plugin offers."""

    kind: str
    """As the registry has it: "measures"."""
    values: dict[str, Any]
    """Its fields that are no functions, until `genbench.plugin.elsewhere` has converted them."""
    module: str = ""
    """Where its function is defined, for a measure."""
    description: str = ""
    """Its whole docstring, for a measure."""


class Description(msgspec.Struct, frozen=True):
    """What came of importing a plugin and calling its hooks."""

    offers: list[Offered] = []
    problems: list[str] = []
    trace: str = ""
    seconds: float = 0.0
    heavy_imports: list[str] = []


def describe(source: Source) -> Description:
    """What `source` offers, as the cache knows it or as a process of its own finds out."""
    kept = _cache() / f"{_hash(source)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(kept.read_bytes(), type=Description)
    found = _ask(source)
    if not found.problems:
        _keep(kept, found)
    return found


def _ask(source: Source) -> Description:
    """Import it elsewhere; whatever becomes of that process is a description."""
    answer, theirs = os.pipe()
    with tempfile.TemporaryDirectory(prefix="genbench-") as private:
        process = subprocess.Popen(
            [sys.executable, "-m", "genbench.plugin.describing", str(theirs), private],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)
        text = b""
        try:
            reader = _Reader(answer)
            process.communicate(msgspec.json.encode(source) + b"\n", timeout=_SECONDS)
            text = reader.text()
        except subprocess.TimeoutExpired:
            return Description(problems=[f"its import did not end within {_SECONDS:g} s"])
        finally:
            process.kill()
            process.wait()
            os.close(answer)
    return _parsed(text, process.returncode)


class _Reader:
    """Takes what a process writes to a pipe, up to a limit, while it runs."""

    def __init__(self, descriptor: int) -> None:
        import threading

        self._descriptor = descriptor
        self._text = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._text) <= _LARGEST and (data := os.read(self._descriptor, 1 << 16)):
                self._text += data

    def text(self) -> bytes:
        """All of it, once the process has ended."""
        self._thread.join(timeout=1.0)
        return self._text


def _parsed(text: bytes, code: int) -> Description:
    if not text.endswith(b"\n"):
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return Description(problems=[f"its import ended the process that asked it ({ending})"])
    try:
        found = msgspec.json.decode(text, type=Description)
    except msgspec.MsgspecError:
        return Description(problems=["its process sent something that is no description"])
    return Description(
        [_clean(one) for one in found.offers],
        [one_line(printable(problem, lines=True), 1000) for problem in found.problems],
        printable(found.trace, lines=True)[-_LONGEST:],
        max(0.0, found.seconds),
        [one_line(printable(name), 100) for name in found.heavy_imports],
    )


def _clean(one: Offered) -> Offered:
    values = {
        name: printable(value)[:_LONGEST] if isinstance(value, str) else value
        for name, value in one.values.items()
    }
    return Offered(one.kind, values, printable(one.module), printable(one.description, lines=True)[:_LONGEST])


# -- what an answer is kept under --------------------------------------------------------------------------


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "genbench" / "plugins"


def _keep(path: Path, found: Description) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        draft.write_bytes(msgspec.json.encode(found))
        draft.replace(path)


def _hash(source: Source) -> str:
    own = Path(__file__).parent.glob("*.py")  # the contract that the plugin was held to
    digest = hashlib.sha256(msgspec.json.encode([1, sys.version, missing(), source]))
    for file in (*sorted(own), *plugin_files(source)):
        about = file.stat()
        digest.update(f"{file}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def plugin_files(source: Source) -> list[Path]:
    """Files of a plugin's code, found without importing it; none if it cannot be found."""
    if source.kind == "file":
        return [Path(source.module)]
    home = module_file(source.module.partition(":")[0].partition(".")[0])
    if home is None:
        return []
    return sorted(home.parent.rglob("*.py")) if home.name == "__init__.py" else [home]
