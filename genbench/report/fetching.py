"""Shows on standard error how far a pack from elsewhere has come."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["FetchBar"]


class FetchBar:
    """A bar for the file that comes; silent if nothing has to be fetched."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._files = self._begun = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, files: int) -> None:
        """Say what is to come."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        print(f"fetching the evidence pack {self._url}: {files} files", file=sys.stderr)
        columns = (
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        )  # fmt: skip
        self._files = files
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()

    def file(self, name: str, size: int | None) -> None:
        """The next one, or the same again after a break."""
        assert self._bar is not None
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._begun += 1
        self._task = self._bar.add_task(f"{min(self._begun, self._files)}/{self._files} {name}", total=size)

    def arrived(self, size: int) -> None:
        """Advance."""
        assert self._bar is not None
        assert self._task is not None
        self._bar.advance(self._task, size)
