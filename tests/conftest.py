"""Shared by all tests: the command line as a user runs it, and suites that take seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "genbench", *map(str, arguments)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run genbench in an empty folder, as a new user would."""

    def run_(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GENBENCH_")}
        settings: dict[str, Any] = {"cwd": tmp_path, "env": environment, "timeout": 300, **options}
        return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, **settings)

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
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY_SUITE)
    done = subprocess.run(
        command(*options("--store", "store")), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As in a worker: spinning threads only slow small networks down on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def quick_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the suite mini-quick was run from scratch with `params`; not to be changed."""
    store = tmp_path_factory.mktemp("mini-quick") / "store"
    arguments = ("run", "--suite", "mini-quick", "--measure", "params", "--store", store, "--json")
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, cwd=store.parent, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (store.parent / "run.json").write_text(done.stdout)
    return store
