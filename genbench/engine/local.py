"""The default executor: worker processes on this machine, one thread each."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from genbench.engine.cells import Cell, Outcome, Status
from genbench.engine.guard import Limits
from genbench.engine.messages import Job, line, parse
from genbench.engine.readings import READING

__all__ = ["LocalExecutor", "Slot"]

_GRACE_SECONDS = 30.0
"""A worker enforces the time limit on its children; past this much more, the worker itself is stuck."""

_OWN_STEP_SECONDS = 7 * 24 * 3600.0
"""genbench's own steps (training a network, say) end by themselves, and on a large suite not soon."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass
class Slot:
    """One worker and what it is doing."""

    group: str = ""
    """The subject it has loaded."""
    cell: Cell | None = None
    deadline: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    received: bytes = field(default=b"", repr=False)


class LocalExecutor:
    """Runs up to `jobs` cells at once; workers are started when first needed."""

    def __init__(self, jobs: int, limits: Limits, scratch: Path) -> None:
        self._limits = limits
        self._scratch = scratch
        self._slots = [Slot() for _ in range(jobs)]
        self._selector = selectors.DefaultSelector()

    def free(self) -> list[Slot]:
        """Slots that can take a cell, those with a loaded subject first."""
        return sorted((slot for slot in self._slots if slot.cell is None), key=lambda slot: slot.group == "")

    def busy(self) -> list[Cell]:
        """Cells that are being computed."""
        return [slot.cell for slot in self._slots if slot.cell is not None]

    def submit(self, slot: Slot, cell: Cell, parents: Mapping[str, Path], out: Path) -> None:
        """Start computing `cell`, whose files go to `out`."""
        if slot.process is None:
            self._start(slot)
        assert slot.process is not None
        assert slot.process.stdin is not None
        limited = cell.step == READING or cell.step.users_code
        seconds = self._limits.seconds if limited else _OWN_STEP_SECONDS
        job = Job(
            cell.step.function,
            dict(cell.inputs),
            dict(cell.about),
            dict(cell.how),
            cell.group,
            {name: str(folder) for name, folder in parents.items()},
            str(out),
            Limits(seconds, self._limits.memory),
        )
        slot.cell = cell
        slot.group = cell.group or slot.group
        slot.deadline = time.monotonic() + seconds + _GRACE_SECONDS
        try:
            slot.process.stdin.write(line(job))
            slot.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died between two cells; `wait` sees its end and says so

    def _start(self, slot: Slot) -> None:
        slot.log = tempfile.TemporaryFile()  # noqa: SIM115
        slot.process = subprocess.Popen(
            [sys.executable, "-m", "genbench.engine.host", str(os.getpid()), str(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=slot.log,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,
        )
        slot.received = b""
        assert slot.process.stdout is not None
        self._selector.register(slot.process.stdout, selectors.EVENT_READ, slot)

    def wait(self, seconds: float) -> list[tuple[Cell, Outcome]]:
        """Cells that ended within `seconds`, with how they ended."""
        ended = []
        for event, _ in self._selector.select(seconds):
            slot: Slot = event.data
            data = os.read(event.fd, 1 << 20)
            slot.received += data
            if not data:
                ended += self._lost(slot, Status.CRASHED, "its worker process died")
            elif slot.received.endswith(b"\n"):
                answer, slot.received = slot.received, b""
                assert slot.cell is not None
                ended.append((slot.cell, parse(answer, Outcome)))
                slot.cell = None
        for slot in self._slots:
            if slot.cell is not None and time.monotonic() > slot.deadline:
                reason = (
                    f"its worker did not answer within {self._limits.seconds:g} s; --timeout sets the limit"
                )
                ended += self._lost(slot, Status.TIMEOUT, reason)
        return ended

    def _lost(self, slot: Slot, status: Status, reason: str) -> list[tuple[Cell, Outcome]]:
        cell, slot.cell, slot.group = slot.cell, None, ""
        code, log = self._stop(slot)
        if cell is None:
            return []
        last = log.strip().splitlines()[-1:] or [f"exit code {code}"]
        return [(cell, Outcome(status, f"{reason} ({last[0]})", output=log[-4096:]))]

    def _stop(self, slot: Slot) -> tuple[int | None, str]:
        """Kill a worker; its children die with it."""
        process, log = slot.process, slot.log
        if process is None or log is None:
            return None, ""
        assert process.stdin is not None
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        process.kill()
        code = process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        log.seek(0)
        text = log.read().decode(errors="replace")
        log.close()
        slot.process = slot.log = None
        return code, text

    def close(self) -> None:
        """Stop all workers at once."""
        for slot in self._slots:
            self._stop(slot)
        self._selector.close()
