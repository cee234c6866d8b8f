"""How work is brought to its end: workers, limits, device and threads, as options and arguments say them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from genbench.errors import UserError

if TYPE_CHECKING:
    from genbench.plugin.offers import Executor
    from genbench.runs.execute import RunOptions

__all__ = [
    "Execution",
    "ExecutionArguments",
    "default_store",
    "execution_arguments",
    "parse_memory",
    "workers_and_threads",
]


class ExecutionArguments(TypedDict, total=False):
    """Keyword arguments of whatever computes; the fields of `Execution`."""

    jobs: int | None
    device: str
    threads: int | None
    autocast: bool
    timeout: float
    memory: str | int | None
    executor: str
    address: str
    no_sandbox: bool
    takes_readings: bool


@dataclass(frozen=True)
class Execution:
    """What was asked for."""

    jobs: int | None = None
    """Worker processes; None is one per core, or per group of threads."""
    device: str = "cpu"
    """Where networks are trained and read: cpu, cuda, cuda:1, mps or auto."""
    threads: int | None = None
    """Of one cell; None is cores / jobs."""
    autocast: bool = False
    """Whether features are computed in bfloat16."""
    timeout: float = 600.0
    """Seconds that one reading may take."""
    memory: str | int | None = None
    """Of one cell: "4G", "500M" or bytes; None is half the machine."""
    executor: str = "local"
    address: str = ""
    """Of a cluster, for an executor that runs cells on one."""
    no_sandbox: bool = False
    """Whether readings may reach whatever this process can; for debugging."""
    takes_readings: bool = False
    """Whether to say so where they are not sealed."""

    def settle(self) -> RunOptions:
        """Look for the device, and compute so from now on; says which device it is unless that is plain.

        Before anything is planned, because features in bfloat16 have keys of their own.
        """
        from genbench.engine.cells import Limits
        from genbench.engine.compute import Compute, use
        from genbench.engine.devices import choose_device, device_elsewhere
        from genbench.sealing.seal import missing

        elsewhere = self._elsewhere()
        device = device_elsewhere(self.device) if elsewhere else choose_device(self.device)
        if self.device != "cpu":
            print(f"device: {device}", file=sys.stderr)
        problem = "--no-sandbox" if self.no_sandbox else "" if elsewhere else missing()
        if problem and self.takes_readings:
            print(f"readings are not sealed: {problem}; no board calls them reproduced", file=sys.stderr)
        if elsewhere:
            jobs, threads = self.jobs, self.threads or 1
        else:
            jobs, threads = workers_and_threads(self.jobs, self.threads)
        compute = Compute(device.name, threads, self.autocast)
        use(compute)
        return {
            "jobs": jobs,
            "limits": Limits(self.timeout, parse_memory(self.memory), compute, not self.no_sandbox),
            "executor": self.executor,
            "address": self.address,
            "device_free": device.free,
        }

    def _elsewhere(self) -> bool:
        """Whether cells run on other machines."""
        if self.executor == "local":  # every command's case, and no reason to look for plugins
            if self.address:
                raise UserError(f"--address {self.address} is for --executor ray; add that, or leave it out")
            return False
        from genbench.plugin.registry import load_registry

        executor: Executor = load_registry().get("executors", self.executor).item
        return executor.elsewhere


def execution_arguments(execution: Execution) -> ExecutionArguments:
    """The same as keyword arguments."""
    return {
        "jobs": execution.jobs,
        "device": execution.device,
        "threads": execution.threads,
        "autocast": execution.autocast,
        "timeout": execution.timeout,
        "memory": execution.memory,
        "executor": execution.executor,
        "address": execution.address,
        "no_sandbox": execution.no_sandbox,
        "takes_readings": execution.takes_readings,
    }


def workers_and_threads(jobs: int | None, threads: int | None) -> tuple[int, int]:
    """Workers and threads of each that share the cores; what was asked for stays as it is."""
    cores = os.cpu_count() or 1
    jobs = jobs or (cores if threads is None else max(1, cores // threads))
    return jobs, threads or max(1, cores // jobs)


def parse_memory(size: str | int | None) -> int:
    """A size such as 4G or 500M in bytes; None is half the machine's memory."""
    if size is None:
        import psutil

        return int(psutil.virtual_memory().total // 2)
    text = str(size)
    number, unit = text[:-1], text[-1:].upper()
    scale = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(unit)
    if scale is None:
        number, scale = text, 1
    try:
        found = int(float(number) * scale)
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise UserError(f"--memory {text!r} is not a size; write 500M or 4G")
    return found


def default_store() -> str:
    """Where results are kept unless said otherwise."""
    return os.environ.get("GENBENCH_STORE") or ".genbench"
