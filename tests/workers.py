"""Several pytest workers, one set of shared results: groups that hold, and folders that are built once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make `xdist_group` hold, and start the longest tests first.

    xdist 3.8 tells its scheduler the group by writing "@group" into `item._nodeid`, which pytest 9.2 no
    longer reads (pytest-xdist issue 1386): put what xdist wrote where pytest looks. With a pair of versions
    that agree there is nothing to put.
    """
    for item in items:
        wanted = getattr(item, "_nodeid", item.nodeid)
        if wanted != item.nodeid:
            item._id = type(item._id).parse(wanted)  # type: ignore[attr-defined]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """A folder that one worker fills and all of them read."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a folder of its own in that of the run
    folder, done = base / "shared" / name, base / "shared" / f"{name}.done"
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that could not finish it
            folder.mkdir()
            build(folder)
            done.touch()
    return folder
