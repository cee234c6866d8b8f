"""Nurseries for commands that run in pytest's own process, without the seconds that importing torch takes.

A command starts a nursery as a fresh Python (`genbench.engine.workers`). Here a process that has imported
what a nursery imports is started once per pytest worker, and nurseries are forked off it: with the folder,
environment, search path and session that a fresh one would have. It has also imported what workers of the
embedded testbeds import first of all: open_clip and timm, torch's compiler, which its optimizers ask for, and
the libraries of cubes. Two workers of each command would take several seconds for it. Commands that tests
start as processes start their nurseries themselves, as a user's do.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from genbench.engine import workers


class SeededNursery:
    """What `genbench.engine.workers` wants of a `subprocess.Popen`."""

    def __init__(self, seed: socket.socket, pid: int) -> None:
        self._seed, self.pid = seed, pid
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = _ask(self._seed, {"wait": self.pid})
        return self._code


class Seed:
    """The process that nurseries are forked off, started when first needed."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def start_nursery(self, control: socket.socket, scratch: Path, log: IO[bytes] | None) -> Any:
        if self._socket is None:
            self._socket = self._open()
        about = {
            "scratch": str(scratch),
            "environment": workers._environment(),
            "folder": str(Path.cwd()),
        }
        # A descriptor of its own: messages about descriptors are as long as they like.
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(about).encode())
            told.flush()
            shown = sys.stderr.fileno() if log is None else log.fileno()
            pid = _ask(self._socket, {}, [control.fileno(), shown, told.fileno()])
        return SeededNursery(self._socket, pid)

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(os.getpid()), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=workers._environment(),
                start_new_session=True,
            )
        atexit.register(process.kill)
        return ours


def _ask(seed: socket.socket, request: dict[str, int], descriptors: list[int] | None = None) -> int:
    socket.send_fds(seed, [json.dumps(request).encode()], descriptors or [])
    return int(seed.recv(64))


# -- in the seed's own process -----------------------------------------------------------------------------


def main(parent: int, seed: socket.socket) -> None:
    from genbench.engine import nursery

    nursery.die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_module("genbench.zoo.mini.clip")
    import_module("genbench.zoo.mini.architecture")
    for name in ("torch._dynamo", "sklearn.datasets", "xarray", "gekko"):
        import_module(name)
    while True:
        text, descriptors, _, _ = socket.recv_fds(seed, 1 << 12, 3)
        if not text:
            return
        request = json.loads(text)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            seed.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            seed.close()
            _be_a_nursery(own, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        seed.sendall(str(pid).encode())


def _be_a_nursery(parent: int, control: int, log: int, told: int) -> None:
    from genbench.engine import nursery

    code = 1
    try:
        os.setsid()
        with open(told, "rb") as file:
            file.seek(0)
            about = json.load(file)
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (nothing, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nothing)
        os.close(log)
        before = _named_paths()
        os.environ.clear()
        os.environ.update(about["environment"])
        os.chdir(about["folder"])
        # As `python -m` has it, with the PYTHONPATH of the command.
        sys.path[:] = [about["folder"], *_named_paths(), *(p for p in sys.path[1:] if p not in before)]
        nursery.main(parent, socket.socket(fileno=control), Path(about["scratch"]))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _named_paths() -> list[str]:
    return [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


if __name__ == "__main__":
    main(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
