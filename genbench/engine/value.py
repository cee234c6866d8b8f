"""What a measure may return: a finite number."""

from __future__ import annotations

import math
import numbers

from genbench.engine.cells import Result
from genbench.errors import one_line
from genbench.plugin.contract import Estimate

__all__ = ["InvalidResult", "finite_number", "result_record"]


class InvalidResult(Exception):
    """The function returned something that cannot be a result."""


def finite_number(value: object) -> float:
    """The value a measure returned as a float, or `InvalidResult` that says what it was instead."""
    import torch

    if isinstance(value, torch.Tensor) and value.ndim == 0 and not value.is_complex():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        shown = one_line(repr(value), 60)
        raise InvalidResult(f"returned {type(value).__name__} {shown}; a measure returns a float")
    number = float(value)
    if not math.isfinite(number):
        raise InvalidResult(f"returned {number}; raise genbench.NotApplicable where the value is undefined")
    return number


def result_record(value: object) -> Result:
    """What a measure returned, as JSON values: `value`, and `detail` where it gave one."""
    number = finite_number(value)
    detail = value.detail() if isinstance(value, Estimate) else {}
    return {"value": number, "detail": detail} if detail else {"value": number}
