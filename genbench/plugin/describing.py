"""The process that imports a plugin to say what it offers: sealed before it does, gone afterwards.

Started by `genbench.plugin.described` as `python -m genbench.plugin.describing ANSWER_FD PRIVATE_FOLDER`; the
source comes on standard input.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from genbench.errors import described, one_line
from genbench.plugin.contract import Measure
from genbench.plugin.described import Description, Offered
from genbench.plugin.loading import KINDS, calls_of, load_source
from genbench.plugin.source import Source, plugin_homes
from genbench.sealing.seal import Seal, missing
from genbench.sealing.visible import visible

__all__ = ["main"]

_HEAVY = {"torch", "torchvision", "timm", "open_clip", "pandas", "tensorflow", "jax"}
_MEMORY = 8 * 2**30


def main(answer: int, private: Path) -> None:
    """Read a source from standard input, write what it offers to `answer`, and end."""
    source = msgspec.json.decode(sys.stdin.buffer.readline(), type=Source)
    if not missing():
        _seal(source, private)
    found = msgspec.json.encode(_described(source)) + b"\n"
    while found:
        found = found[os.write(answer, found) :]
    os._exit(0)  # whatever the plugin would do at exit


def _seal(source: Source, private: Path) -> None:
    code = [Path(source.module)] if source.kind == "file" else []
    around = visible(private, frozenset(plugin_homes()))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    Seal([*around.read, *code], private, listed=around.listed).close("reading")


def _described(source: Source) -> Description:
    began, problems, offers, trace = time.perf_counter(), [], [], ""
    try:
        for kind, items in calls_of(source, load_source(source)).items():
            for item in items:
                if isinstance(item, KINDS[kind]):
                    offers.append(_offered(kind, item))
                else:
                    problems.append(_no_offer(kind, item))
    except BaseException as problem:
        problems.append(described(problem))
        trace = traceback.format_exc()
    heavy = sorted(_HEAVY & sys.modules.keys())
    return Description(offers, problems, trace, time.perf_counter() - began, heavy)


def _no_offer(kind: str, item: object) -> str:
    expected = KINDS[kind]
    hint = "; decorate it with @genbench.measure" if expected is Measure and callable(item) else ""
    shown = one_line(repr(item))
    return f"genbench_{kind}() returned {shown}, which is not a genbench {expected.__name__}{hint}"


def _offered(kind: str, item: Any) -> Offered:
    values = {}
    for one in fields(item):
        value = getattr(item, one.name)
        if isinstance(value, (frozenset, set)):
            value = sorted(value)
        if isinstance(value, Path):
            value = str(value)
        if not callable(value):
            values[one.name] = value
    if not isinstance(item, Measure):
        return Offered(kind, values)
    return Offered(kind, values, getattr(item.function, "__module__", "") or "", item.description)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
