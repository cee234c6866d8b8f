"""Where workers come from: a process that has imported torch and genbench once, and forks each worker.

Started by `genbench.engine.workers` as `python -m genbench.engine PARENT_PID CONTROL_FD SCRATCH`. Requests
come over the control socket, one at a time, each answered by one line.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from genbench.engine.environment import restore_environment
from genbench.engine.guard import die_with_parent
from genbench.engine.host import prepare_torch, serve
from genbench.engine.messages import Build, Builder, Built, Start, Started, Stop, Stopped, line, parse
from genbench.engine.own import NoSubject, build_own, fingerprint
from genbench.subject.parts import seed_globals
from genbench.subject.subject import TrainedNetwork

__all__ = ["main"]


def main(parent: int, control: socket.socket, scratch: Path) -> None:
    """Serve requests until the executor is gone."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.dup2(2, 1)  # what a user's code prints is no answer
    prepare_torch()
    seed_globals(0)  # imports what seeding needs
    # What is here now stays: collections in a child need not touch, and so copy, its pages.
    gc.collect()
    gc.freeze()
    gc.enable()
    held: TrainedNetwork | None = None
    part_seed = 0
    builder: Builder | None = None
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not text:
            return
        request: Start | Stop | Build = parse(text, Start | Stop | Build)  # type: ignore[arg-type]
        answer: msgspec.Struct
        if isinstance(request, Start):
            answer = Started(_fork(control, descriptors, scratch, held, part_seed, builder))
        elif isinstance(request, Stop):
            answer = Stopped(_ended(request.pid, request.patience))
        else:
            part_seed = request.seed
            borrowed = restore_environment(scratch)  # it is the user's own code
            try:
                held = build_own(Path(request.file), request.function)
                answer = Built(fingerprint(held))
                builder = Builder(request.file, request.function, answer.fingerprint)
            except NoSubject as problem:
                answer = Built(problem=str(problem))
            for name in borrowed:
                os.environ.pop(name, None)
        control.sendall(line(answer))


def _fork(
    control: socket.socket,
    descriptors: list[int],
    scratch: Path,
    held: TrainedNetwork | None,
    part_seed: int,
    builder: Builder | None,
) -> int:
    channel, log = descriptors
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        os.close(channel)
        os.close(log)
        return pid
    code = 1
    try:
        die_with_parent(nursery)
        control.close()
        os.dup2(log, 2)
        os.close(log)
        serve(channel, scratch, held, part_seed, builder)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _ended(pid: int, patience: float) -> int:
    """End a worker, if it does not end by itself; its exit code."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)  # a child that is not waited for keeps its number
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
