"""What statistics of the audit are made of: readings of one measure and truths of the networks, as arrays.

C enters as y = ± log C (± C where the measure is a logarithm), with the sign that makes larger mean worse.
Where a reading of a stressor is not positive, y is ± C in units of its median size, and statistics of ratios
are replaced by those of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from genbench.audit.step_types import KeptNetwork
from genbench.engine.cells import Setting

__all__ = ["AuditReading", "AuditTruth", "Observed", "Row", "Rows"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AuditTruth:
    """What is known of one network."""

    stressor: str
    settings: Mapping[str, Setting]
    error: float | None
    test_size: int
    predictions: str
    kept: KeptNetwork


@dataclass(frozen=True)
class AuditReading:
    """A measure on one network."""

    value: float | None
    standard_error: float | None
    """As the measure states it."""
    repeats: Sequence[float]
    """Values with other draws of shared parts, where it was read so."""
    reason: str = ""
    """Why there is no value."""


@dataclass(frozen=True)
class Row:
    """A network with a reading."""

    label: str
    truth: AuditTruth
    value: float
    """As read."""
    y: float
    floor: float
    """Standard error of y."""

    def __getitem__(self, name: str) -> Setting:
        """A setting."""
        return self.truth.settings[name]

    @property
    def error(self) -> float:
        """On held-out images."""
        assert self.truth.error is not None
        return self.truth.error

    @property
    def recipe(self) -> str:
        """Optimizer and learning rate."""
        return f"{self['optimizer']} {self['rate']:g}"


@dataclass(frozen=True)
class Rows:
    """Networks of one stressor."""

    rows: Sequence[Row]
    logs: bool
    """Whether y is a logarithm; else in units of the median |C|."""
    missing: int
    """Networks without a reading."""
    reason: str
    """The commonest reason for that."""

    def where(self, **settings: Setting) -> list[Row]:
        """Those with these settings."""
        wanted = settings.items()
        return [row for row in self.rows if wanted <= row.truth.settings.items()]

    def values(self, name: str) -> list[Setting]:
        """The values of a setting, in the order in which they come."""
        return list(dict.fromkeys(row[name] for row in self.rows))

    @cached_property
    def recipes(self) -> list[str]:
        """Optimizer and rate, in the order in which they come."""
        return list(dict.fromkeys(row.recipe for row in self.rows))


@dataclass(frozen=True)
class Observed:
    """All networks of an audit with the readings of one measure."""

    truths: Mapping[str, AuditTruth]
    readings: Mapping[str, AuditReading]
    logarithm: bool
    sign: float

    @classmethod
    def of(
        cls,
        truths: Mapping[str, AuditTruth],
        readings: Mapping[str, AuditReading],
        logarithm: bool,
        higher_means: str,
    ) -> Observed:
        """As a measure says of itself."""
        return cls(truths, readings, logarithm, 1.0 if higher_means == "worse" else -1.0)

    @property
    def stressors(self) -> list[str]:
        """Of which there are networks."""
        return list(dict.fromkeys(truth.stressor for truth in self.truths.values()))

    def rows(self, stressor: str, *also: str) -> Rows:
        """Networks of a stressor, and of others that it looks at too."""
        mine = {
            k: t for k, t in self.truths.items() if t.stressor in (stressor, *also) and t.error is not None
        }
        known = {k: self.readings[k].value for k in mine if self.readings[k].value is not None}
        lacking = [self.readings[k].reason for k in mine if k not in known]
        reason = max(set(lacking), key=lacking.count) if lacking else ""
        sizes = [abs(v) for v in known.values() if v is not None]
        logs = self.logarithm or all(v is not None and v > 0 for v in known.values())
        unit = (float(np.median(sizes)) if sizes else 1.0) or (max(sizes, default=0.0) or 1.0)
        relative = self._relative_floor([k for k in mine if k in known])
        rows = []
        for label, value in known.items():
            assert value is not None
            stated = self.readings[label].standard_error or 0.0
            if self.logarithm:
                y, floor = value, max(stated, relative)
            elif logs:
                y, floor = math.log(value), max(stated / value, relative)
            else:
                y, floor = value / unit, max(stated / unit, relative)
            rows.append(Row(label, mine[label], value, self.sign * y, floor))
        return Rows(rows, logs, len(lacking), reason)

    def _relative_floor(self, labels: Sequence[str]) -> float:
        """Spread over draws of shared parts: of log C, or of C where the measure is a logarithm."""
        found = [0.0]
        for label in labels:
            again = np.array(self.readings[label].repeats)
            if len(again) > 1:
                size = 1.0 if self.logarithm else float(np.abs(again).mean()) or 1.0
                found.append(float(again.std(ddof=1)) / size)
        return max(found)
