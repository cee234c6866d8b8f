"""Processes of genbench without the seconds that importing torch takes.

A command starts a nursery as a fresh Python (`genbench.engine.workers`). Here a process that has imported
what a nursery imports is started once per run of pytest, and nurseries are forked off it, or whole commands
with their nurseries: with the folder, environment, search path and session that fresh ones would have. It has
also imported what workers of the embedded testbeds import first of all: open_clip and timm, torch's compiler,
which its optimizers ask for, and the libraries of cubes. Two workers of each command would take several
seconds for it. Commands that tests start by `subprocess` start their nurseries themselves, as a user's do.

Each pytest worker has a fork of the seed to itself, so that none waits for what another asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

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
    """The process that others are forked off, started by the first of a run of pytest that needs it.

    Parameters
    ----------
    folder : that all workers of the run share.
    opened : a seed that is there already.
    """

    def __init__(self, folder: Path | None = None, opened: socket.socket | None = None) -> None:
        self._folder, self._socket = folder, opened

    def start_nursery(self, control: socket.socket, scratch: Path, log: IO[bytes] | None) -> Any:
        about = {"scratch": str(scratch), "environment": workers._environment(), "folder": str(Path.cwd())}
        shown = sys.stderr.fileno() if log is None else log.fileno()
        return SeededNursery(*self._fork({"do": "nursery"}, about, [control.fileno(), shown]))

    def run(
        self, *arguments: str | Path, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """`subprocess.run` of `python -m genbench`, what it says captured; its nurseries are seeded too."""
        words = ["genbench", *map(str, arguments)]
        about = {"words": words[1:], "environment": dict(env), "folder": str(cwd)}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            seed, pid = self._fork({"do": "command"}, about, [out.fileno(), err.fileno()])
            alive = os.pidfd_open(pid)
            in_time = select.select([alive], [], [], timeout)[0]
            os.close(alive)
            if not in_time:
                os.kill(pid, signal.SIGKILL)
            code = _ask(seed, {"wait": pid})
            if not in_time:
                raise subprocess.TimeoutExpired(words, timeout)
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(words, code, *said)

    def _fork(
        self, request: dict[str, Any], about: dict[str, Any], descriptors: list[int]
    ) -> tuple[socket.socket, int]:
        if self._socket is None:
            self._socket = self._open()
        # A descriptor of its own: messages about descriptors are as long as they like.
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(about).encode())
            told.flush()
            return self._socket, _ask(self._socket, request, [*descriptors, told.fileno()])

    def _open(self) -> socket.socket:
        assert self._folder is not None
        address = self._folder / "seed"
        with FileLock(f"{address}.lock"):
            if not address.exists():
                address.write_text(self._start())
        joined = socket.socket(socket.AF_UNIX)
        joined.connect(f"\0{address.read_text()}")
        return joined

    def _start(self) -> str:
        """Start it; the name in Linux's own space of sockets at which it can be joined at once."""
        name = f"genbench-seed-{secrets.token_hex(8)}"
        # Of the process that started the workers, which is there for as long as any of them.
        run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        with socket.socket(socket.AF_UNIX) as joining:
            joining.bind(f"\0{name}")
            joining.listen()
            subprocess.Popen(
                [sys.executable, __file__, str(run), str(joining.fileno())],
                pass_fds=[joining.fileno()],
                env=workers._environment(),
                start_new_session=True,
            )
        return name


def _ask(seed: socket.socket, request: dict[str, Any], descriptors: list[int] | None = None) -> int:
    socket.send_fds(seed, [json.dumps(request).encode()], descriptors or [])
    return int(seed.recv(64))


# -- in the seed's own process -----------------------------------------------------------------------------


def main(run: int, joining: socket.socket) -> None:
    from genbench.engine import nursery

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_module("genbench.zoo.mini.clip")
    import_module("genbench.zoo.mini.architecture")
    for name in ("torch._dynamo", "sklearn.datasets", "xarray", "gekko"):
        import_module(name)
    gc.collect()
    gc.freeze()
    own = os.getpid()
    while Path(f"/proc/{run}").exists():
        asked = select.select([joining], [], [], 1.0)[0]
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        if asked:
            joined, _ = joining.accept()
            if os.fork() == 0:
                joining.close()
                nursery.die_with_parent(own)
                _serve(joined)
                os._exit(0)
            joined.close()


def _serve(seed: socket.socket) -> None:
    """Fork what is asked for until nobody asks."""
    gc.collect()
    gc.freeze()
    while True:
        text, descriptors, _, _ = socket.recv_fds(seed, 1 << 12, 4)
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
            if request["do"] == "nursery":
                _be_a_nursery(own, *descriptors)
            _be_a_command(own, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        seed.sendall(str(pid).encode())


def _be_a_nursery(parent: int, control: int, log: int, told: int) -> None:
    from genbench.engine import nursery

    code = 1
    try:
        os.setsid()
        about = _told(told)
        nothing = os.open(os.devnull, os.O_RDWR)
        _take_over([nothing, nothing, log], about)
        nursery.main(parent, socket.socket(fileno=control), Path(about["scratch"]))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _be_a_command(parent: int, out: int, err: int, told: int) -> None:
    """`python -m genbench`; its nurseries come off a copy of this process, as it is now."""
    from genbench.engine import nursery

    nursery.die_with_parent(parent)
    about = _told(told)
    nothing = os.open(os.devnull, os.O_RDONLY)
    _take_over([nothing, out, err], about)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    ours, theirs = socket.socketpair()
    own = os.getpid()
    if os.fork() == 0:
        ours.close()
        nursery.die_with_parent(own)
        _serve(theirs)
        os._exit(0)
    theirs.close()
    workers._start_nursery = Seed(opened=ours).start_nursery
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["genbench", *about["words"]]
    code: Any = 0
    try:
        runpy.run_module("genbench", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    # All that Python does at its end but for taking torch apart, which takes a second.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    assert isinstance(code, int | None)
    os._exit(code or 0)


def _told(descriptor: int) -> dict[str, Any]:
    with open(descriptor, "rb") as file:
        file.seek(0)
        about: dict[str, Any] = json.load(file)
    return about


def _take_over(streams: list[int], about: dict[str, Any]) -> None:
    """Standard streams, environment, folder and search path of a fresh `python -m`."""
    for target, source in enumerate(streams):
        os.dup2(source, target)
    for source in {*streams}:
        os.close(source)
    before = _named_paths()
    os.environ.clear()
    os.environ.update(about["environment"])
    os.chdir(about["folder"])
    sys.path[:] = [about["folder"], *_named_paths(), *(path for path in sys.path[1:] if path not in before)]


def _named_paths() -> list[str]:
    return [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


if __name__ == "__main__":
    main(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
