"""Readings of a network of the user's own: `genbench read ./mynet.py:build`.

`build()` returns a `genbench.Subject`. It runs once, in a fresh worker process; each measure then runs in a
guarded child of that process, as in a run, with the same statuses.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO

import msgspec

from genbench.engine.ask import ProcessEnded, answers_of
from genbench.engine.cells import Outcome
from genbench.engine.guard import Limits, die_with_parent
from genbench.errors import UserError, described
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry, Source, load_file

__all__ = ["read_network"]


def read_network(
    file: Path, function: str, measures: Sequence[Entry[Measure]], limits: Limits, seed: int = 0
) -> Iterator[tuple[str, Outcome]]:
    """(measure, outcome) for the subject that `function` of `file` builds, as they come.

    Raises
    ------
    UserError
        If the subject cannot be built; says why.
    """
    request = {
        "file": str(file.resolve()),
        "function": function,
        "measures": [{"source": asdict(entry.source), "name": entry.item.name} for entry in measures],
        "limits": asdict(limits),
        "seed": seed,
    }
    try:
        for message in answers_of("genbench.engine.own", request):
            if "problem" in message:
                raise UserError(f"{file}:{function} gives no subject: {message['problem']}")
            yield message["name"], msgspec.convert(message["outcome"], Outcome)
    except ProcessEnded as end:
        raise UserError(f"{file}:{function} gives no subject: its process ended with {end}") from end


def _serve(parent: int) -> None:
    die_with_parent(parent)
    request = json.loads(sys.stdin.readline())
    answers = open(os.dup(1), "w", buffering=1)  # noqa: SIM115
    os.dup2(2, 1)  # what the user's code prints must not mix with the answers
    with tempfile.TemporaryDirectory(prefix="genbench-") as scratch:
        try:
            _answer(request, answers, Path(scratch))
        except _NoSubject as problem:
            answers.write(json.dumps({"problem": str(problem)}) + "\n")


class _NoSubject(Exception):
    """Why the user's function gave no subject."""


def _answer(request: dict[str, object], answers: IO[str], scratch: Path) -> None:
    from genbench.engine.host import ReadingHost, prepare_torch

    prepare_torch()
    subject = _built(Path(str(request["file"])), str(request["function"]))
    seed = int(str(request["seed"]))
    host = ReadingHost(scratch)
    host.load("own", subject._network, seed)
    limits = Limits(**request["limits"])  # type: ignore[arg-type]
    for wanted in request["measures"]:  # type: ignore[attr-defined]
        outcome = host.read(Source(**wanted["source"]), wanted["name"], seed, limits)
        message = {"name": wanted["name"], "outcome": msgspec.to_builtins(outcome)}
        answers.write(json.dumps(message) + "\n")


def _built(file: Path, function: str):  # type: ignore[no-untyped-def]
    from genbench.subject import Subject

    try:
        build = getattr(load_file(file), function, None)
        if not callable(build):
            raise _NoSubject(f"it defines no function {function!r}")
        subject = build()
    except (Exception, SystemExit) as problem:
        if isinstance(problem, _NoSubject):
            raise
        raise _NoSubject(described(problem)) from problem
    if not isinstance(subject, Subject):
        raise _NoSubject(
            f"it returned {type(subject).__name__}; return genbench.Subject.from_module(model, data=(x, y))"
        )
    return subject


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
