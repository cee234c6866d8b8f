"""Ray, imported when a cluster is asked for, and the connection to one."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from genbench.errors import UserError, one_line

__all__ = ["connect", "import_ray"]


def import_ray() -> ModuleType:
    """The library, or one sentence that says how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default; silent about it
    try:
        import ray
    except ImportError:
        raise UserError(
            "--executor ray needs Ray; run `pip install 'genbench[ray]'` here and on every node"
        ) from None
    module: ModuleType = ray
    return module


def connect(ray: Any, address: str) -> bool:
    """Join the cluster at `address`; whether that was done here, and is to be undone."""
    if ray.is_initialized():
        return False
    address = address or "auto"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False}
    try:
        with _own_debugger():
            ray.init(address=address, **options)
        _leave_stdout_alone()
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as problem:
        raise UserError(
            f"--address {address}: no Ray cluster can be joined from here ({one_line(str(problem), 160)}); "
            "`ray start --head` starts one, `ray start --address HOST:PORT` adds this machine to one, and "
            "--address local uses this machine alone"
        ) from problem
    return True


@contextlib.contextmanager
def _own_debugger() -> Iterator[None]:
    """Ray would have `breakpoint()` call its debugger, for as long as this process lives."""
    before = os.environ.get("PYTHONBREAKPOINT")
    try:
        yield
    finally:
        os.environ.pop("PYTHONBREAKPOINT", None)
        if before is not None:
            os.environ["PYTHONBREAKPOINT"] = before


def _leave_stdout_alone() -> None:
    """Ray prints what becomes of nodes to stdout, whatever was said of its log; there a document is due."""
    worker = sys.modules.get("ray._private.worker")
    printing = getattr(worker, "print_to_stdstream", None)
    if worker is None or printing is None or hasattr(printing, "genbench"):
        return

    def to_stderr(data: dict[str, Any], *others: Any, **more: Any) -> None:
        printing({**data, "is_err": True}, *others, **more)

    to_stderr.genbench = True  # type: ignore[attr-defined]
    worker.print_to_stdstream = to_stderr  # type: ignore[attr-defined]
