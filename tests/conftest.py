"""Shared by all tests: the command line as a user runs it, and suites that take seconds."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import lzma
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil
import pytest
from workers import (
    built_once,
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_configure,
    shared_folder,
)

if TYPE_CHECKING:
    from seed import Seed
    from shown_boards import ShownBoards

# As genbench's own workers: with several at a time on a machine, threads of linear algebra only wait for each
# other, and take processor time to do it. The libraries look once, when they are loaded.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

TINY_SUITE = """
name = "tiny"
summary = "a few networks, one epoch each"
kind = "population"

[data]
dataset = "digits"
train_size = 60
seed = 0

[train]
architecture = "nin"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
batch_size = 32
stop_cross_entropy = 100.0
max_epochs = 1
depth = 1

[grid]
width = [4, 6, 8]
learning_rate = [0.1]
seed = [0]

[quick.grid]
width = [4]
"""

__all__ = [
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_unconfigure",
]  # hooks: it is pytest that calls them

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_unconfigure() -> None:
    """pytest looks through all objects five times at its end, for what nobody raised: a second each."""
    gc.collect()
    gc.freeze()


_LARGE = 2**30
"""Bytes of a process that is worth a look at all its objects, which takes a second or two."""
_GROWN = 2**29
"""Bytes more than after the last look that are worth another."""
_kept = [_LARGE - _GROWN]
"""Bytes of this process after the last look."""


@pytest.fixture(scope="module", autouse=True)
def _memory_given_back() -> Iterator[None]:
    """What a module's tests freed: forks of a process of gigabytes are slow, and look as large as it is."""
    yield
    process = psutil.Process()
    if process.memory_info().rss < _kept[0] + _GROWN:
        return
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    _kept[0] = max(process.memory_info().rss, _LARGE - _GROWN)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "genbench", *map(str, arguments)]


def environment() -> dict[str, str]:
    """That of a new user."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GENBENCH_")}


@contextlib.contextmanager
def _streams(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Files in the place of stdout and stderr, for this process and for the processes it starts."""
    paths = folder / "out", folder / "err"
    with contextlib.ExitStack() as stack:
        for number, name, path in zip((1, 2), ("stdout", "stderr"), paths, strict=True):
            getattr(sys, name).flush()
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            file = stack.enter_context(open(path, "w", encoding="utf-8", buffering=1))
            os.dup2(file.fileno(), number)
            stack.enter_context(mock.patch.object(sys, name, file))
        yield paths


@contextlib.contextmanager
def _warnings_as_python_shows_them() -> Iterator[None]:
    """pytest turns some into errors and keeps the rest to itself; a user sees them on stderr."""

    def show(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))

    with warnings.catch_warnings():
        warnings.resetwarnings()
        for hidden in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)
        warnings.showwarning = show
        yield


def in_process(
    *arguments: str | Path, cwd: Path, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line in this process: the same code, answers and exit codes, and no start of Python.

    What is left of a command here (imported modules, the registry of plugins) is what a test may not ask
    about; such tests start a process of their own.
    """
    from genbench.cli import main

    words = [str(argument) for argument in arguments]
    code: Any = "the command never said that it ended"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out, err = stack.enter_context(_streams(folder))
        stack.enter_context(_warnings_as_python_shows_them())
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(mock.patch.dict(os.environ, {**environment(), **(settings or {})}, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["genbench", *words]))
        # pytest keeps every core busy: a command's second worker would only cost another start of torch.
        stack.enter_context(mock.patch.object(os, "cpu_count", return_value=1))
        try:
            main(words)
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        answers = out.read_text("utf-8"), err.read_text("utf-8")
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(["genbench", *words], code, *answers)


@pytest.fixture
def run_process(tmp_path: Path) -> Run:
    """Run genbench in an empty folder, as a new user would, in a process of its own."""

    def run_(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        settings: dict[str, Any] = {"cwd": tmp_path, "env": environment(), "timeout": 300, **options}
        return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, **settings)

    return run_


@pytest.fixture
def run(tmp_path: Path, seed: Seed) -> Run:
    """The same without the start of Python; an `env` of its own takes a process of its own, off the seed."""

    def run_(
        *arguments: str | Path,
        cwd: Path = tmp_path,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        if env is None:
            return in_process(*arguments, cwd=cwd)
        return seed.run(*arguments, cwd=cwd, env=env, timeout=timeout)

    return run_


@pytest.fixture
def tiny_suite(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SUITE)
    return path


def readings(document: str) -> dict[tuple[str, str], tuple[str, float | None, str]]:
    """(measure, subject) to (status, value, reason) of a `genbench run --json`."""
    return {
        (measure["name"], reading["subject"]): (reading["status"], reading["value"], reading["reason"])
        for measure in json.loads(document)["measures"]
        for reading in measure["readings"]
    }


def cell_files(store: Path) -> dict[str, bytes]:
    """Every stored byte that is a result: all files of all cells but what they cost."""
    cells = store / "cells"
    return {
        str(path.relative_to(cells)): path.read_bytes()
        for path in sorted(cells.rglob("*"))
        if path.is_file() and path.name != "cost.json"
    }


MEASURES = ["path_norm", "inverse_margin", "pacbayes_flatness", "baseline_random"]


def options(*more: str | Path) -> list[str | Path]:
    """A run of the tiny suite: four measures, and the baselines that every run adds."""
    chosen = [option for name in MEASURES for option in ("--measure", name)]
    return ["run", *chosen, "--suite", "tiny.toml", "--json", *more]


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny.toml and the store of one uninterrupted run; copy it, never change it."""

    def build(folder: Path) -> None:
        (folder / "tiny.toml").write_text(TINY_SUITE)
        done = in_process(*options("--store", "store"), cwd=folder)
        assert done.returncode == 0, done.stderr
        (folder / "run.json").write_text(done.stdout)

    return built_once(tmp_path_factory, "finished", build)


@pytest.fixture(scope="session", autouse=True)
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
    """Workers of commands in this process come off a process that imported torch once."""
    from seed import Seed

    from genbench.engine import workers

    seed = Seed(shared_folder(tmp_path_factory))
    with mock.patch.object(workers, "_start_nursery", seed.start_nursery):
        yield seed


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As in a worker: spinning threads only slow small networks down on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _letters_unpacked_once() -> Iterator[None]:
    """Half a second each time; `load` copies what it is given."""
    from genbench.data import glyphs

    once = SimpleNamespace(decompress=functools.cache(lzma.decompress))
    with mock.patch.object(glyphs, "lzma", once):
        yield


@pytest.fixture(scope="session")
def wheels_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `test_wheel` builds, installs and runs a wheel, in the subfolder `empty`."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="session")
def readers_store(wheels_folder: Path) -> Path:
    """Of all who read the documents (`reader.Reader`), and of the installed wheel; all are one xdist group.

    The wheel comes first, and reads path_norm on `mini`; keys are the same for the checkout.
    """
    return wheels_folder / "empty" / ".genbench"


@pytest.fixture(scope="session")
def shown_boards(tmp_path_factory: pytest.TempPathFactory) -> ShownBoards:
    """Boards of `mini` and of `nin-fashion` with a site; their tests are one xdist group."""
    from shown_boards import ShownBoards

    return ShownBoards.build(tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="session")
def quick_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the suite mini-quick was run from scratch with `params`; not to be changed."""

    def build(folder: Path) -> None:
        store = folder / "store"
        arguments = ("run", "--suite", "mini-quick", "--measure", "params", "--store", store, "--json")
        done = in_process(*arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        (folder / "run.json").write_text(done.stdout)

    return built_once(tmp_path_factory, "mini-quick", build) / "store"


@pytest.fixture(scope="session")
def few_built(tmp_path_factory: pytest.TempPathFactory, quick_store: Path) -> Path:
    """The suite `few` of six networks (tests/few.py), with pack and records; not to be changed."""
    import few

    return built_once(tmp_path_factory, "few", lambda folder: few.build(folder, quick_store))


@pytest.fixture(scope="module")
def few(few_built: Path) -> Iterator[Path]:
    """The same, with the suite known to this process for all tests of a module."""
    from few import installed

    with installed(few_built / "site"):
        yield few_built
