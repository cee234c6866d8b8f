"""Figures on pages, drawn once: a figure that was drawn before from the same inputs is taken from a folder.

Loading matplotlib and drawing take longer than everything else that a run does whose readings are stored.
A figure is kept below a digest of all that determines it: the function that draws it, its inputs, genbench's
code and matplotlib's version.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from genbench.display.figures import inline_svg

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["figures_kept_in", "inlined"]

_MOST_KEPT = 200
"""Files in a folder; beyond, the oldest make room. Each has some ten to a hundred kilobytes."""
_MOST_DRAWN = 32
"""Figures in memory, for a program that makes many pages of the same evidence."""
_DRAWN: dict[str, str] = {}
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)

Inputs = ParamSpec("Inputs")


@contextmanager
def figures_kept_in(folder: Path) -> Iterator[None]:
    """Within, figures are taken from `folder` and added to it."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def inlined(
    description: str, draw: Callable[Inputs, Figure], *inputs: Inputs.args, **options: Inputs.kwargs
) -> Markup:
    """`inline_svg` of what `draw` gives, marked as HTML: matplotlib escapes all that it writes.

    Parameters
    ----------
    draw : a function of a module, which sees nothing but its inputs.
    inputs, options : values, sequences, mappings, dataclasses, arrays or xarray data sets.
    """
    from markupsafe import Markup

    key = _digest(
        _code(sys.modules[draw.__module__].__file__ or ""), draw.__qualname__, description, inputs, options
    )
    return Markup(_kept(key, lambda: inline_svg(draw(*inputs, **options), description)))


def _kept(key: str, draw: Callable[[], str]) -> str:
    folder = _FOLDER.get()
    file = None if folder is None else folder / f"{key}.svg"
    kept = None if file is None else _read(file)
    text = kept or _DRAWN.get(key) or draw()
    if file is not None and kept is None:
        _write(file, text)
    _DRAWN[key] = text
    if len(_DRAWN) > _MOST_DRAWN:
        del _DRAWN[next(iter(_DRAWN))]
    return text


def _read(file: Path) -> str | None:
    """The text of a whole file; None for one that is missing or damaged."""
    try:
        digest, _, text = file.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == hashlib.sha256(text.encode()).hexdigest() else None


def _write(file: Path, text: str) -> None:
    """Whole or not at all; a folder that cannot be written costs the next run its time, and nothing else."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", encoding="utf-8")
        draft.replace(file)
        kept = sorted(file.parent.glob("*.svg"), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[:-_MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        with suppress(OSError):
            draft.unlink()


@cache
def _code(module: str) -> str:
    """A mark of all code that could have a part in a drawing: any change of genbench draws anew."""
    files = [*sorted(_PACKAGE.rglob("*.py")), Path(module)]
    stamps = [(str(file), stat.st_mtime_ns, stat.st_size) for file in files for stat in [file.stat()]]
    return _digest(version("matplotlib"), stamps)


def _digest(*values: Any) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in _parts(values):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """Bytes that differ where values differ; what is not known is an error, never alike."""
    if value is None or isinstance(value, (str, bool, int, float, np.generic)):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        if value.dtype.hasobject:
            yield from _all(value.ravel().tolist())
        else:
            yield np.ascontiguousarray(value).tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield f"{type(value).__qualname__}".encode()
        yield from _all((field.name, getattr(value, field.name)) for field in fields(value))
    elif hasattr(value, "__struct_fields__"):
        yield f"{type(value).__qualname__}".encode()
        yield from _all((name, getattr(value, name)) for name in value.__struct_fields__)
    elif hasattr(value, "data_vars"):  # an xarray data set, without importing xarray
        yield b"data set"
        yield from _parts(dict(value.attrs))
        yield from _all((str(n), one.dims, one.values) for n, one in sorted(value.variables.items()))
    elif isinstance(value, Mapping):
        yield b"mapping"
        yield from _all(value.items())
    elif isinstance(value, (Sequence, tuple, list)):
        yield b"sequence"
        yield from _all(value)
    else:
        raise TypeError(
            f"a figure's input may not be a {type(value).__name__}: it cannot be told from others"
        )


def _all(values: Iterable[Any]) -> Iterator[bytes | memoryview]:
    count = 0
    for value in values:
        yield from _parts(value)
        count += 1
    yield f"end of {count}".encode()
