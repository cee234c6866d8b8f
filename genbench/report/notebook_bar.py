"""A progress bar in a notebook: one piece of HTML that is shown once and then changed.

IPython alone is enough for that. The bars of rich need ipywidgets there and are silent without it.
"""

from __future__ import annotations

import html
import sys
import time
from typing import Any

__all__ = ["NotebookBar", "in_notebook"]

_SECONDS = 0.1
"""Between two changes: every one is a message to the browser."""


def in_notebook() -> bool:
    """Whether what is displayed here goes to a page, and not to a terminal."""
    # Nobody who runs in a notebook has not imported IPython yet.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A bar with a title above it and what is in work beside it."""

    def __init__(self, title: str) -> None:
        from IPython.display import display

        self._title = title
        self._shown = 0.0
        self._handle: Any = display(_Html(_bar(title, 0, 0, "")), display_id=True)

    def update(self, done: int, total: int, now: str) -> None:
        """So much is done; the last change is always shown."""
        moment = time.monotonic()
        if done < total and moment - self._shown < _SECONDS:
            return
        self._shown = moment
        self._handle.update(_Html(_bar(self._title, done, total, "" if done >= total else now)))


class _Html:
    """What a notebook shows as HTML, and a file of it as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _bar(title: str, done: int, total: int, now: str) -> str:
    count = f"{done}/{total}" if total else ""
    return (
        f"<div><div>{html.escape(title)}</div>"
        f'<progress value="{done}" max="{max(total, 1)}" style="width: 20em"></progress> '
        f"<code>{count}</code> <small>{html.escape(now)}</small></div>"
    )
