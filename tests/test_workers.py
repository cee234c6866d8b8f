"""Tests that share something expensive run on one worker, or find it built by another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TESTS = """
import pytest
from workers import built_once


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    def build(folder):
        with open({log!r}, "a") as log:
            log.write("built built\\n")

    return built_once(tmp_path_factory, "shared", build)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("group", [
    pytest.param("first", marks=pytest.mark.xdist_group("first")),
    pytest.param("second", marks=pytest.mark.xdist_group("second")),
    "module",
    pytest.param("slow", marks=pytest.mark.slow),
])
def test_one(shared, worker_id, group, number):
    import time

    time.sleep(0.1)  # so that neither worker can do everything before the other has begun
    with open({log!r}, "a") as log:
        log.write(f"{{group}} {{worker_id}}\\n")
"""


def test_a_group_stays_on_one_worker_and_a_shared_folder_is_built_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "test_inner.py").write_text(TESTS.format(log=str(log)))
    # A run of its own: neither the options nor the marks of this one reach it.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    inner = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "xdist", "-p", "workers"),
            *("-n", "2", "--dist", "loadgroup"),
            *("-c", os.devnull, "--rootdir", tmp_path, "--basetemp", tmp_path / "temporary"),
            tmp_path / "test_inner.py",
        ],
        env={**outside, **plugins}, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert inner.returncode == 0, inner.stdout + inner.stderr
    ran: dict[str, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines():
        group, worker = line.split()
        ran[group].append(worker)
    assert {group: len(workers) for group, workers in ran.items()} == {
        "built": 1, "first": 6, "second": 6, "module": 6, "slow": 6,
    }  # fmt: skip
    assert len(set(ran["first"])) == len(set(ran["second"])) == len(set(ran["module"])) == 1
    assert set(ran["slow"]) == {"gw0", "gw1"}  # there were two workers to be spread over
    assert list(ran) == ["built", "slow", *list(ran)[2:]], "the longest begin"
