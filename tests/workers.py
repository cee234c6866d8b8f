"""Several pytest workers, one set of shared results: groups that hold, and folders that are built once."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

_LONG = (
    "site", "test_leaderboard", "quick_store", "test_lite_suite", "test_cli", "conformance kit", "test_hooks",
    "test_submission", "test_mini_zoo", "test_judge_command", "test_population", "test_references",
    "adaptations", "test_fresh", "test_real_backbones", "test_sealed", "test_trips", "test_challenge",
    "test_torchvision",
)  # fmt: skip
"""Groups that take longest, the longest first: at the end one worker must not wait for the other's."""


def _turn(item: pytest.Item) -> int:
    """Slow tests first, which take longest of all; then long groups; then the rest.

    Readers of documents are the longest group; they find in their store what the installed wheel computed.
    """
    group = item.get_closest_marker("xdist_group")
    if item.get_closest_marker("slow") is not None:
        if group is not None and group.args[0] == "documents":
            return -3 if item.path.stem == "test_wheel" else -2
        return -1
    return _LONG.index(group.args[0]) if group is not None and group.args[0] in _LONG else len(_LONG)


def pytest_configure(config: pytest.Config) -> None:
    """Hand out work in the order below; xdist would begin with the groups of most tests."""
    config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Without looks for garbage, of which there is hardly any yet: they took a sixth of a worker's time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.disable()
    result = yield
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Keep a module's tests together, make `xdist_group` hold, and begin with the longest tests.

    What a module computes once is computed once only if one worker has all its tests; slow tests are spread.

    xdist 3.8 tells its scheduler the group by writing "@group" into `item._nodeid`, which pytest 9.2 no
    longer reads (pytest-xdist issue 1386): put what xdist wrote where pytest looks. With a pair of versions
    that agree there is nothing to put.
    """
    for item in items:
        if not any(map(item.get_closest_marker, ("slow", "xdist_group"))):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_turn)
    yield
    for item in items:
        wanted = getattr(item, "_nodeid", item.nodeid)
        if wanted != item.nodeid:
            item._id = type(item._id).parse(wanted)  # type: ignore[attr-defined]


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The one folder of all workers of a run."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a folder of its own in that of the run
    folder = base / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """A folder that one worker fills and all of them read."""
    folder = shared_folder(factory) / name
    done = folder.with_name(f"{name}.done")
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that could not finish it
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
