"""Options that say how cells are brought to their end: workers, limits, device and threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from genbench.api.execution import Execution

__all__ = ["Execution", "execution_options", "local_execution_options", "worker_options"]

F = TypeVar("F", bound=Callable[..., Any])


_WORKERS = (
    click.option("--autocast", is_flag=True, help="Compute features in bfloat16, under keys of their own."),
    click.option(
        "--threads", type=click.IntRange(min=1), metavar="N",
        help="Threads of one cell.  [default: cores / jobs]",
    ),
    click.option(
        "--device", default="cpu", show_default=True, metavar="cpu|cuda|cuda:1|mps|auto",
        help="Where networks are trained and read.",
    ),
    click.option(
        "--jobs", "-j", type=click.IntRange(min=1),
        help="Worker processes.  [default: one per core, or per group of threads]",
    ),
)  # fmt: skip
_LIMITS = (
    click.option(
        "--no-sandbox", is_flag=True,
        help="Let readings see files, network and processes, to debug them; their records say so.",
    ),
    click.option(
        "--memory", metavar="SIZE",
        help="Memory limit of one cell, as 4G or 500M.  [default: half the machine]",
    ),
    click.option(
        "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
        metavar="SECONDS", help="Time limit of one reading.",
    ),
)  # fmt: skip
_EXECUTOR = (
    click.option(
        "--address", default="", metavar="auto|local|HOST:PORT",
        help="The cluster of `--executor ray`.  [default: auto]",
    ),
    click.option("--executor", default="local", show_default=True, help="How cells are run: local or ray."),
)  # fmt: skip


def execution_options(function: F) -> F:
    """Add `--jobs`, `--device`, `--threads`, `--autocast`, `--executor`, `--address` and a reading's limits.

    The command gets one argument `execution` in their place.
    """
    return _with(function, (*_EXECUTOR, *_LIMITS, *_WORKERS))


def local_execution_options(function: F) -> F:
    """The same without `--executor` and `--address`."""
    return _with(function, (*_LIMITS, *_WORKERS))


def worker_options(function: F) -> F:
    """The same without limits, for commands that compute nothing."""
    return _with(function, _WORKERS)


_OF_LIMITS = ("timeout", "memory", "executor", "address", "no_sandbox")


def _with(function: F, options: tuple[Callable[[F], F], ...]) -> F:
    @wraps(function)
    def command(
        *args: Any, jobs: int | None, device: str, threads: int | None, autocast: bool, **others: Any
    ) -> Any:
        limits = {name: others.pop(name) for name in _OF_LIMITS if name in others}
        execution = Execution(jobs, device, threads, autocast, **limits, takes_readings=bool(limits))
        return function(*args, execution=execution, **others)

    decorated: Any = command
    for option in options:
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
