"""Scores: readings of a measure compared with evidence. Array code on numpy, never torch."""

from genbench.scoring.sign_error import SignError, bootstrap_sign_error, sign_error

__all__ = ["SignError", "bootstrap_sign_error", "sign_error"]
