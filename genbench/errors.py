"""The few exceptions and warnings of genbench, each saying who must act."""

from __future__ import annotations

__all__ = ["ContractError", "GenbenchWarning", "NotApplicable", "StoreError", "UserError"]


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
