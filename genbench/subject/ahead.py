"""Work that is done ahead of its use, by one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["one_ahead"]

Part = TypeVar("Part")
Made = TypeVar("Made")


def one_ahead(make: Callable[[Part], Made], parts: Iterable[Part]) -> Iterator[Made]:
    """`make(part)` of every part in its order; while one is in use, a thread makes the next.

    With a core to spare the making takes no time of its own. No more than two are in memory.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending: Future[Made] | None = None
        for part in parts:
            following = pool.submit(make, part)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()
