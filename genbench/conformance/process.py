"""The process behind `run_checks`: clean, single-threaded, forks one guarded child per check.

It gives up all but what a reading may see before the plugin is imported, and its children give up the rest.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import msgspec

from genbench.conformance.checks import Broken, Check, checks
from genbench.conformance.kit import CheckRequest, CheckResult
from genbench.conformance.networks import convolutional, fully_connected
from genbench.engine.cells import Outcome, Result, Status
from genbench.engine.guard import Ask, Limits, Work, die_with_parent, run_pieces
from genbench.engine.guarded import Sealing, keep_status_open
from genbench.engine.host import import_libraries, prepare_torch
from genbench.engine.sandbox import close_plugin, reading_seal
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Source, source_measures
from genbench.sealing.seal import close_further, missing

__all__ = ["main"]


def main(parent: int) -> None:
    """Read one request from standard input, write one JSON line per check."""
    die_with_parent(parent)
    prepare_torch()
    request = msgspec.json.decode(sys.stdin.readline(), type=CheckRequest)
    source, name, limits = request.source, request.measure, request.limits
    _ = convolutional(), fully_connected()  # trained once, here; every check forks with them
    gc.freeze()  # as in the nursery: what checks inherit is not to be copied by their collections
    guarded = partial(_guarded, limits=limits, seal=_seal(request))
    measure = _imported(source, name, guarded)

    def outcome_of(check: Check) -> Outcome:
        def work(_: Ask) -> Result:
            try:
                return {"detail": check(measure or source_measures(source)[name])}
            except Broken as problem:
                return {"broken": str(problem)}

        return guarded(work)

    for title, kind, check in checks():
        if not title.startswith(request.only):
            continue
        result = _result(title, kind, outcome_of(check))
        print(msgspec.json.encode(result).decode(), flush=True)


def _guarded(work: Work, limits: Limits, seal: Sealing | None) -> Outcome:
    ((_, outcome),) = run_pieces([work], limits, learn=_learn, seal=seal)
    return outcome


def _learn(modules: Sequence[str]) -> None:
    import_libraries(modules)
    gc.freeze()


def _seal(request: CheckRequest) -> Sealing | None:
    """Seal this process; how its children do it, or None where nothing is sealed."""
    if not request.private or not request.limits.sandbox or missing():
        return None
    private = Path(request.private)
    code = [Path(request.source.module)] if request.source.kind == "file" else []
    keep_status_open()
    # There is no network to be given, and no store to be hidden.
    close_plugin(reading_seal(private, private, private, request.limits.compute, code))
    return Sealing(partial(close_further, private), private)


def _imported(source: Source, name: str, guarded: Callable[[Work], Outcome]) -> Measure | None:
    """The measure, imported here once for all checks.

    None if its import does not go well in a process of its own, so that every check says so.
    """

    def tried(_: Ask) -> Result:
        return {"found": name in source_measures(source, prepare=True)}

    outcome = guarded(tried)
    if outcome.status is not Status.OK or not outcome.result["found"]:
        return None
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        return source_measures(source, prepare=True)[name]


def _result(title: str, kind: str, outcome: Outcome) -> CheckResult:
    if outcome.status is Status.NOT_APPLICABLE:
        return CheckResult(title, kind, "not_applicable", outcome.reason)
    if outcome.status is not Status.OK:
        return CheckResult(title, kind, "failed", f"{outcome.status}: {outcome.reason}", outcome.output)
    if "broken" in outcome.result:
        return CheckResult(title, kind, "failed", outcome.result["broken"], outcome.output)
    verdict = "finding" if kind == "science" else "passed"
    return CheckResult(title, kind, verdict, outcome.result["detail"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
