"""Whether what a reading sent back can be believed to be one: numbers, sizes and text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genbench.engine.cells import Cost, Outcome, Result, Status
from genbench.errors import one_line, printable

__all__ = ["checked"]

_MOST_LAYERS = 10_000
_LONGEST_NAME = 300
_LONGEST_REASON = 1_000
_LONGEST_OUTPUT = 4_096
_LARGEST_COUNT = 2**62


def checked(outcome: Outcome) -> Outcome:
    """The outcome of a reading as far as it is one; what is not becomes an invalid one that says why."""
    problem = _problem(outcome.result) if outcome.status is Status.OK else ""
    status = Status.INVALID if problem else outcome.status
    reason = problem or one_line(printable(outcome.reason, lines=True), _LONGEST_REASON)
    result = outcome.result if status is Status.OK else {}
    output = printable(outcome.output, lines=True)[-_LONGEST_OUTPUT:]
    return replace(
        outcome,
        status=status,
        reason=reason,
        result=result,
        cost=_cost(outcome.cost),
        output=output,
        fixable=None,
    )


def _problem(result: Result) -> str:
    """What is wrong with the result of a reading; empty if nothing."""
    if set(result) - {"value", "detail"}:
        return "sent more than a value and its detail"
    if not _finite(result.get("value")):
        return "sent no finite number"
    detail = result.get("detail", {})
    if not isinstance(detail, Mapping) or set(detail) - {"standard_error", "samples", "layers"}:
        return "sent detail other than a standard error, samples and layers"
    if not all(_finite(detail[name]) for name in ("standard_error", "samples") if name in detail):
        return "sent a standard error or samples that are no finite numbers"
    return _layers_problem(detail.get("layers", {}))


def _layers_problem(layers: Any) -> str:
    if not isinstance(layers, Mapping):
        return "sent layers that are no numbers by name"
    if len(layers) > _MOST_LAYERS:
        return f"sent {len(layers):,} layers; at most {_MOST_LAYERS:,} are kept"
    if not all(len(name) <= _LONGEST_NAME and name == printable(name) for name in layers):
        return "sent layers with names that are too long or hold control characters"
    return "" if all(map(_finite, layers.values())) else "sent layers that are no finite numbers"


def _finite(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < _LARGEST_COUNT
    return isinstance(value, float) and math.isfinite(value)


def _cost(cost: Cost) -> Cost:
    """With nothing in it that a table or a file could not take."""
    return replace(
        cost,
        seconds=_amount(cost.seconds),
        shared_seconds=_amount(cost.shared_seconds),
        processor_seconds=_amount(cost.processor_seconds),
        peak_bytes=int(min(max(cost.peak_bytes, 0), _LARGEST_COUNT)),
        device=one_line(printable(cost.device), 200),
    )


def _amount(seconds: float) -> float:
    return min(max(seconds, 0.0), 1e9) if math.isfinite(seconds) else 0.0
