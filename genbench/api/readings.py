"""`genbench.read`: one measure on one network, in this process, with the value that a run gives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from genbench.api.memory import forget_peak, peak_memory
from genbench.errors import NotApplicable, UserError
from genbench.plugin.contract import Estimate, Measure

if TYPE_CHECKING:
    from genbench.plugin.registry import Entry
    from genbench.subject import Subject

__all__ = ["AnyMeasure", "Reading", "find_one", "read"]

AnyMeasure = str | Path | Measure
"""A measure by name, as "file.py" or "file.py:function", or itself."""


class Reading(Estimate):
    """What a measure says of one network: a float, with what is known beside it."""

    measure: str
    subject: str
    seconds: float
    """Wall time of the measure's own code."""
    shared_seconds: float
    """Wall time of the shared parts it used, whether they were computed for it or before."""
    peak_bytes: int
    """Largest resident memory of this process while it was taken; 0 where the system does not say."""

    def __new__(
        cls,
        value: float,
        *,
        standard_error: float | None = None,
        samples: int | None = None,
        layers: Mapping[str, float] | None = None,
        measure: str = "",
        subject: str = "",
        seconds: float = 0.0,
        shared_seconds: float = 0.0,
        peak_bytes: int = 0,
    ) -> Self:
        """A float with all of that."""
        self = super().__new__(cls, value, standard_error=standard_error, samples=samples, layers=layers)
        self.measure, self.subject = measure, subject
        self.seconds, self.shared_seconds, self.peak_bytes = seconds, shared_seconds, peak_bytes
        return self

    def __repr__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.2g}"
        return f"<{self.measure} of {self.subject}: {float(self):.6g}{error}, {self.seconds:.2g} s>"

    def _repr_html_(self) -> str:
        from genbench.api.views import reading_view

        return reading_view(self)


def read(
    measure: AnyMeasure, subject: Subject, *, seed: int | None = None, threads: int | None = 1
) -> Reading:
    """Read `measure` off `subject` in this process; whatever it raises comes through.

    A subject of a suite (`genbench.load_suite("mini").subject("mini-clip:short4/a1")`) gives the value that
    `genbench.run` gives, to the bit on the CPU: the same seed, one thread, the same state of torch.

    >>> import genbench, torch
    >>> network = torch.nn.Linear(4, 3)
    >>> data = torch.randn(30, 4), torch.arange(30) % 3
    >>> reading = genbench.read("param_count", genbench.Subject.from_module(network, data=data))
    >>> float(reading), reading.measure
    (15.0, 'param_count')

    Parameters
    ----------
    seed : of the reading; by default the subject's own, which of a suite's subject depends on the measure.
    threads : of torch meanwhile; None leaves them as they are.

    Raises
    ------
    genbench.NotApplicable
        If the measure does not apply to this network.
    """
    from genbench.engine.value import InvalidResult, result_record

    chosen = measure if isinstance(measure, Measure) else find_one(measure).item
    view, counted = _view(chosen, subject, seed)
    lacking = chosen.needs - view.provides
    if lacking:
        raise NotApplicable(f"it needs {', '.join(sorted(lacking))}, which this subject does not have")
    with _as_in_a_worker(view.seed, threads):
        forget_peak()
        began = time.perf_counter()
        value = chosen(view)
        seconds = time.perf_counter() - began
        peak = peak_memory()
    try:
        found = result_record(value)
    except InvalidResult as problem:
        raise UserError(f"measure {chosen.name!r} {problem}") from None
    if counted is not None:
        seconds -= counted.waited
    return Reading(
        found["value"],
        **found.get("detail", {}),
        measure=chosen.name,
        subject=subject.name,
        seconds=seconds,
        shared_seconds=0.0 if counted is None else sum(counted.shared_seconds.values()),
        peak_bytes=peak,
    )


def _view(measure: Measure, subject: Subject, seed: int | None) -> tuple[Subject, Any]:
    """A fresh view for one reading, and what counts its parts, where something does."""
    from genbench.api.networks import SuiteSubject

    if not isinstance(subject, SuiteSubject):
        return subject.fresh(seed=seed), None
    subject.parts.begin()
    return subject.fresh(seed=subject.seed_of(measure.name) if seed is None else seed), subject.parts.counted


@contextlib.contextmanager
def _as_in_a_worker(seed: int, threads: int | None) -> Iterator[None]:
    """Global generators and kernels as a reading finds them in a run; afterwards as they were."""
    import torch

    from genbench.subject.parts import kept_globals

    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    if threads is not None:
        torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")
    try:
        with kept_globals(seed):
            yield
    finally:
        torch.set_deterministic_debug_mode(before[1])
        torch.set_num_threads(before[0])


def find_one(spec: str | Path) -> Entry[Measure]:
    """The one measure that a name or a file means, to be called in this process."""
    from genbench.plugin.registry import find_measure_here

    found = find_measure_here(str(spec))
    if len(found) > 1:
        names = ", ".join(entry.item.name for entry in found)
        raise UserError(f"{spec} has several measures ({names}); write {spec}:{found[0].item.name} for one")
    return found[0]
