"""The executor's side of the nursery: starts worker processes and ends them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from genbench.engine.environment import keep_environment, worker_environment
from genbench.engine.messages import Build, Built, Start, Started, Stop, Stopped, line, parse

__all__ = ["NurseryEnded", "Worker", "Workers"]

_ENVIRONMENT = {
    # Until a guarded process sets torch's own: one that has started threads cannot be forked.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    # Threads that wait do not spin: where another process has the core, a spinning one takes its time away.
    "OMP_WAIT_POLICY": "PASSIVE",
    # What cuBLAS needs to give the same bits twice.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Pages of two megabytes for what torch allocates when it is imported. Every reading is a fork, and a fork
    # copies and drops a table entry for each page: of small ones there are some 40,000, half of its time.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

_PATIENCE = 2.0
"""Seconds for a worker without work to end by itself."""

T = TypeVar("T")


def _environment() -> dict[str, str]:
    """That of workers; of what tunes glibc, the user's own comes later, and wins."""
    tunables = [_ENVIRONMENT["GLIBC_TUNABLES"], os.environ.get("GLIBC_TUNABLES", "")]
    return {**worker_environment(), **_ENVIRONMENT, "GLIBC_TUNABLES": ":".join(filter(None, tunables))}


class NurseryEnded(Exception):
    """The process that workers are forked from ended; says how."""


class Worker:
    """One worker process: a channel of JSON lines, and what it writes to stderr."""

    def __init__(self, pid: int, channel: socket.socket, log: IO[bytes]) -> None:
        self.pid = pid
        self.channel = channel
        self._log = log

    def close(self) -> str:
        """Close its files; what it wrote to its log."""
        self.channel.close()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        self._log.close()
        return text


class Workers:
    """Forks workers off one process that imported torch once; that process is started when first needed."""

    def __init__(self, scratch: Path, *, shown: bool = False) -> None:
        self._scratch = scratch
        self._log = None if shown else tempfile.TemporaryFile()  # noqa: SIM115
        """What that process writes; a person sees it where a function of theirs runs there."""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> Worker:
        """A new worker."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            started = self._ask(Start(), Started, [theirs.fileno(), log.fileno()])
        return Worker(started.pid, ours, log)

    def stop(self, worker: Worker, *, idle: bool = False) -> tuple[int | None, str]:
        """End a worker, whose children die with it: its exit code, if it can be known, and its log."""
        code = None
        with contextlib.suppress(OSError):
            worker.channel.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(NurseryEnded):
            code = self._ask(Stop(worker.pid, _PATIENCE if idle else 0.0), Stopped).exit_code
        return code, worker.close()

    def build(self, file: Path, function: str, seed: int) -> Built:
        """Have all workers hold the network that a function of the user's builds."""
        return self._ask(Build(str(file.resolve()), function, seed), Built)

    def _ask(self, request: msgspec.Struct, wanted: type[T], descriptors: list[int] | None = None) -> T:
        if self._control is None:
            self._open()
        assert self._control is not None
        answer = b""
        try:
            socket.send_fds(self._control, [line(request)], descriptors or [])
            while not answer.endswith(b"\n"):
                data = self._control.recv(1 << 16)
                if not data:
                    raise ConnectionError
                answer += data
        except OSError:
            assert self._process is not None
            end = f"exit code {self._process.wait()}"
            if self._log is not None:
                self._log.seek(0)
                end = "".join(self._log.read().decode(errors="replace").strip().splitlines()[-1:]) or end
            self.close()
            raise NurseryEnded(end) from None
        return parse(answer, wanted)

    def _open(self) -> None:
        self._control, theirs = socket.socketpair()
        keep_environment(self._scratch)
        with theirs:
            self._process = _start_nursery(theirs, self._scratch, self._log)

    def close(self) -> None:
        """End the process that workers come from, and with it those that are left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._log is not None:
            self._log.close()
            self._log = None


def _start_nursery(control: socket.socket, scratch: Path, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    words = [str(os.getpid()), str(control.fileno()), str(scratch)]
    return subprocess.Popen(
        [sys.executable, "-m", "genbench.engine", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=[control.fileno()],
        env=_environment(),
        start_new_session=True,
    )
