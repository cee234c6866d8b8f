"""Trying a measure while it is written: a few networks, in this process, with the author's own traceback."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from genbench.api.readings import Reading, read
from genbench.engine.cells import Status
from genbench.errors import NotApplicable, UserError, described, one_line

if TYPE_CHECKING:
    from genbench.api.suites import LoadedSuite
    from genbench.plugin.contract import Measure
    from genbench.plugin.registry import Entry

__all__ = [
    "Trial",
    "authors_traceback",
    "file_mark",
    "smallest_networks",
    "try_measures",
    "wait_for_change",
]


@dataclass(frozen=True)
class Trial:
    """One measure on one network."""

    measure: str
    network: str
    status: Status
    reading: Reading | None = None
    reason: str = ""
    trace: str = ""
    """Traceback of what it raised, from the author's own file on."""


def smallest_networks(loaded: LoadedSuite, count: int) -> list[str]:
    """The first by size, where it is known without computing anything; else by the suite's order."""
    sizes = loaded.sizes()
    ordered = sorted(loaded.names, key=lambda name: sizes.get(name, 0)) if sizes else loaded.names
    return ordered[:count]


def try_measures(
    entries: Sequence[Entry[Measure]],
    loaded: LoadedSuite,
    networks: Sequence[str],
    on_error: Callable[[BaseException], None] = lambda problem: None,
) -> Iterator[Trial]:
    """Read every measure off every network; what it prints is seen as it comes.

    Parameters
    ----------
    on_error : told what a measure raised while its frames are still there, for a debugger.
    """
    import bdb

    for network in networks:
        subject = loaded.subject(network)
        for entry in entries:
            name = entry.item.name
            try:
                reading = read(entry.item, subject)
            except NotApplicable as refusal:
                yield Trial(name, network, Status.NOT_APPLICABLE, reason=one_line(str(refusal)))
            except UserError as problem:
                yield Trial(name, network, Status.INVALID, reason=one_line(str(problem)))
            except bdb.BdbQuit:
                raise KeyboardInterrupt from None  # `q` in a debugger: the person wants out
            except Exception as problem:
                trace = authors_traceback(problem, Path(entry.source.module))
                yield Trial(name, network, Status.FAILED, reason=described(problem), trace=trace)
                on_error(problem)
            else:
                yield Trial(name, network, Status.OK, reading)


def authors_traceback(problem: BaseException, file: Path) -> str:
    """The traceback without genbench's own frames before the author's; all of it if he has none."""
    trace = problem.__traceback__
    while trace is not None and not _in(trace, file):
        trace = trace.tb_next
    shown = problem.__traceback__ if trace is None else trace
    return "".join(traceback.format_exception(type(problem), problem, shown))


def _in(trace: TracebackType, file: Path) -> bool:
    return Path(trace.tb_frame.f_code.co_filename).resolve() == file


def file_mark(file: Path) -> tuple[int, int]:
    """What tells one state of `file` from another; (0, 0) while it is gone."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def wait_for_change(file: Path, before: tuple[int, int], seconds: float = 0.3) -> None:
    """Return once `file` is another than when it had the mark `before`.

    Editors replace files, so it may be gone for a moment. The mark is that of the file as it was read: it may
    have been changed while the measure ran.
    """
    import linecache
    import time

    while file_mark(file) in (before, (0, 0)):
        time.sleep(seconds)
    linecache.checkcache(str(file))  # or tracebacks would show lines of the old file
