"""Kills runs of genbench, end to end, at any moment: nothing may be lost, changed or left over.

    python tests/kills.py [KILLS] [SEED]

Three runs share a store; each is killed (SIGKILL, its workers must notice) and started again, while the
others go on. A part of the kills is aimed at the moments when a run writes to SQLite.
Once a store holds all results, it is compared with that of a run that nobody disturbed, byte by byte, and a
new one is begun. Runs, and the processes that their workers come from, are forked off processes that have
imported what they import, so that a kill costs little processor time; what is forked begins where `python -m
genbench` does. `tests/test_engine.py` runs a sample.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

RUNS = 3
SUITE = """
name = "killed"
summary = "two networks, one epoch each"
kind = "population"

[data]
dataset = "digits"
train_size = 40
heldout_size = 40
seed = 0

[train]
architecture = "nin"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
batch_size = 40
stop_cross_entropy = 100.0
max_epochs = 1
depth = 1
learning_rate = 0.1
width = 2

[grid]
seed = [0, 1, 2, 3, 4, 5]
"""
WORDS = [
    "run", "--suite", "killed.toml", "--measure", "param_norm", "--measure", "params", "--json",
    "--jobs", "1",
    "--store",
]  # fmt: skip


def cell_files(store: Path) -> dict[str, bytes]:
    """Every stored byte that is a result: all files of all cells but what they cost."""
    cells = store / "cells"
    return {
        str(path.relative_to(cells)): path.read_bytes()
        for path in sorted(cells.rglob("*"))
        if path.is_file() and path.name != "cost.json"
    }


def table(store: Path) -> list[tuple[object, ...]]:
    """Readings as SQLite has them."""
    with contextlib.closing(sqlite3.connect(store / "readings.sqlite")) as connection:
        query = "SELECT key, suite, subject, measure, status, reason, value FROM readings ORDER BY key"
        return connection.execute(query).fetchall()


def starts(store: Path) -> dict[str, int]:
    """How often the computation of each cell was begun."""
    if not (store / "readings.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(store / "readings.sqlite", timeout=60)) as connection:
        query = "SELECT key, COUNT(*) FROM events WHERE event = 'started' GROUP BY key"
        with contextlib.suppress(sqlite3.OperationalError):  # killed before it had a table
            return dict(connection.execute(query))
    return {}


def finished(store: Path) -> set[str]:
    """Keys of stored cells."""
    return {path.name for path in (store / "cells").glob("*/*")} if store.exists() else set()


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    """Of runs that were at work."""
    in_sqlite: int = 0
    """Of these, aimed at a write to SQLite."""
    stores: int = 0
    """Brought to their end and compared."""
    problems: list[str] = field(default_factory=list)


class Nursery:
    """What `genbench.engine.workers` wants of a `subprocess.Popen`."""

    def __init__(self, nurseries: Nurseries, pid: int) -> None:
        self._nurseries, self.pid = nurseries, pid

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return self._nurseries.ask({"wait": self.pid}, [])


class Nurseries:
    """A process that has imported torch, and forks a nursery for whoever asks.

    Each question comes over a connection of its own: whoever asks may be killed before the answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._path)
            listening.listen(64)
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    _serve(listening)
                finally:
                    os._exit(1)

    def start(self, control: socket.socket, scratch: Path, log: IO[bytes] | None) -> Nursery:
        from genbench.engine import workers

        about = {
            "scratch": str(scratch), "environment": workers._environment(), "folder": str(Path.cwd()),
        }  # fmt: skip
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(about).encode())
            told.flush()
            shown = 2 if log is None else log.fileno()
            return Nursery(self, self.ask({}, [control.fileno(), shown, told.fileno()]))

    def ask(self, request: dict[str, int], descriptors: list[int]) -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
            return int(connection.recv(64))

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _serve(listening: socket.socket) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from seed import _be_a_nursery

    from genbench.engine import nursery

    nursery.die_with_parent(os.getppid())
    ended: dict[int, int] = {}
    own = os.getpid()
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = found[1]
        with connection, contextlib.suppress(OSError):  # it may be dead by now
            text, descriptors, _, _ = socket.recv_fds(connection, 1 << 12, 3)
            request = json.loads(text or "null")
            if not isinstance(request, dict):
                continue
            if "wait" in request:
                pid = request["wait"]
                status = ended.pop(pid) if pid in ended else os.waitpid(pid, 0)[1]
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            if (pid := os.fork()) == 0:
                connection.close()
                listening.close()
                _be_a_nursery(own, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            connection.sendall(str(pid).encode())


class Killer:
    """Three runs of one store."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.found = Found()
        (folder / "killed.toml").write_text(SUITE)
        self._prepare()
        self.store = folder / "reference"
        assert self._wait(self._start()) == 0, "the run that nobody disturbs failed"
        self.reference, self.rows = cell_files(self.store), table(self.store)
        self.number = 0
        self._next_store()

    def _next_store(self) -> None:
        self.number += 1
        self.store = self.folder / f"store{self.number}"
        self.runs = [self._start() for _ in range(RUNS)]

    def _prepare(self) -> None:
        """Import, once, what every run would."""
        import genbench.api.runs
        import genbench.cli.run
        import genbench.report.run_page
        import genbench.report.runs  # noqa: F401
        from genbench.engine import workers
        from genbench.plugin.registry import load_registry

        load_registry()
        self.nurseries = Nurseries(self.folder / "nurseries")
        workers._start_nursery = self.nurseries.start

    def _start(self) -> int:
        """A run in a process group of its own."""
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            os.setpgid(0, 0)
            os.chdir(self.folder)
            nothing = os.open(os.devnull, os.O_RDWR)
            said = os.open(self.folder / f"{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT)
            for number, target in ((0, nothing), (1, nothing), (2, said)):
                os.dup2(target, number)
            from genbench.cli import main

            sys.argv = ["genbench", *WORDS, str(self.store)]
            try:
                main(sys.argv[1:])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        finally:
            os._exit(code)

    @staticmethod
    def _wait(pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def kill(self, kills: int) -> Found:
        """Do it."""
        while self.found.kills < kills:
            self._kill_one()
        for pid in self.runs:
            self._end(pid)
        self.runs = []
        self._finish()
        self.nurseries.close()
        return self.found

    def _end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._wait(pid)

    def _kill_one(self) -> None:
        """Kill one of the runs while there is work, start it again, and look at what was done before."""
        if not self._working():
            self._finish()
            self._next_store()
        place = self.chance.randrange(RUNS)
        done, before = finished(self.store), starts(self.store)
        aimed = self.chance.random() < 0.4
        self._await_moment(self.chance.randrange(4), len(done), aimed)
        ended, status = os.waitpid(self.runs[place], os.WNOHANG)
        if ended:
            if os.waitstatus_to_exitcode(status):
                said = (self.folder / f"{self.runs[place]}.txt").read_text().splitlines()[-1:]
                self.found.problems.append(f"a run failed with status {status}: {said}")
            self.runs[place] = self._start()
            if finished(self.store) >= {path.split("/")[1] for path in self.reference}:
                self._finish()
                self._next_store()
            return
        self._end(self.runs[place])
        self.found.kills += 1
        self.found.in_sqlite += aimed
        after = starts(self.store)
        if again := [key for key in done if after.get(key, 0) != before.get(key, 0)]:
            self.found.problems.append(f"finished cells were begun again: {again}")
        self.runs[place] = self._start()

    def _await_moment(self, more: int, done: int, aimed: bool) -> None:
        """Until some cells more are stored and, if that is aimed at, SQLite's log grows."""
        deadline = time.monotonic() + 20
        log = self.store / "readings.sqlite-wal"
        while time.monotonic() < deadline and len(finished(self.store)) < done + more and self._working():
            time.sleep(0.002)
        before = _written(log)
        while aimed and time.monotonic() < deadline and _written(log) == before and self._working():
            time.sleep(0.0002)
        if not aimed:
            time.sleep(self.chance.uniform(0, 0.05))

    def _working(self) -> bool:
        """Whether cells are left."""
        return len(finished(self.store)) < len({path.split("/")[1] for path in self.reference})

    def _finish(self) -> None:
        """Bring the store to its end, undisturbed, and compare."""
        for pid in self.runs:
            self._end(pid)
        self.runs = []
        if (code := self._wait(self._start())) != 0:
            self.found.problems.append(f"{self.store.name}: the last run failed with {code}")
        files, staging = cell_files(self.store), self.store / "staging"
        if missing := self.reference.keys() - files.keys():
            self.found.problems.append(f"{self.store.name}: lost {sorted(missing)[:3]}")
        if changed := [name for name in self.reference if files.get(name, b"") != self.reference[name]]:
            self.found.problems.append(f"{self.store.name}: changed {changed[:3]}")
        if files.keys() - self.reference.keys():
            self.found.problems.append(f"{self.store.name}: has more than it should")
        if table(self.store) != self.rows:
            self.found.problems.append(f"{self.store.name}: other rows in SQLite")
        # Runs that were killed as they were born, and folders that a dying worker wrote to while they were
        # removed, go a minute later: runs that are being born have that long.
        if young := list(staging.iterdir()):
            for path in young:
                os.utime(path, (0, 0))
            if (code := self._wait(self._start())) != 0:
                self.found.problems.append(f"{self.store.name}: a run after the last failed with {code}")
        if left := list(staging.iterdir()):
            self.found.problems.append(f"{self.store.name}: left over {[path.name for path in left]}")
        self.found.stores += 1
        shutil.rmtree(self.store, ignore_errors=True)


def _written(path: Path) -> int:
    """When; its size tells nothing, because SQLite begins anew at its start."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def main(kills: int = 1000, seed: int = 0) -> int:
    """Kill, and say what came of it; the number of problems."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="genbench-kills-") as folder:
        killer = Killer(Path(folder), seed)
        found = killer.kill(kills)
    spent = os.times()
    seconds = spent.user + spent.system + spent.children_user + spent.children_system
    print(
        f"{found.kills} kills of {RUNS} runs of one store ({found.in_sqlite} aimed at SQLite), "
        f"{found.stores} stores compared, {len(found.problems)} problems; "
        f"{time.perf_counter() - began:.0f} s, {seconds:.0f} s of processor"
    )
    for problem in found.problems:
        print(f"    {problem}")
    return len(found.problems)


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
