"""The few exceptions and warnings of genbench, each saying who must act, and any exception in one line."""

from __future__ import annotations

__all__ = [
    "ContractError",
    "GenbenchWarning",
    "NotApplicable",
    "StoreError",
    "UserError",
    "described",
    "one_line",
    "printable",
]


class UserError(Exception):
    """Something the person at the keyboard can fix.

    The command line prints the message as one sentence, without a traceback, and exits with 2, so the
    message says what was wrong, what was expected and what to do.
    """


class StoreError(UserError):
    """The store cannot be read or written (no permission, disk full, not a store)."""


class ContractError(TypeError):
    """A plugin breaks the contract; its author must fix it."""


class NotApplicable(Exception):
    """Raised by a measure where its mathematics does not apply, with the reason as its message."""


class GenbenchWarning(UserWarning):
    """Something a user should know that does not stop the work."""


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with every character that could steer a terminal shown as "�".

    Parameters
    ----------
    lines : whether line ends and tabs may stay.
    """
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else "�" for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def described(problem: BaseException) -> str:
    """Type and message of an exception on one line: "ValueError: the file is empty"."""
    text = one_line(str(problem))
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
