"""The trade-off point of a cube (004 Eq. 4), and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["TOLERANCE", "TradeOff", "relative_gap"]

TOLERANCE = 1e-3
"""Largest certified gap to the brute-force scan, as a share of the objective."""


class TradeOff(msgspec.Struct, frozen=True):
    """The trade-off point of a cube, and how far it can be trusted."""

    scales: str
    weights: tuple[float, float, float]
    """(l1, l2, l3), of zero-shot, SSIM and model size."""
    ssim: float
    """SSIM lower bound: how degraded images may be."""
    zero_shot: float
    """Zero-shot upper bound: the share of unseen classes that is bearable."""
    model_size: float
    """Weight count."""
    generalization_bound: float
    """Mean of `generalization`."""
    diversity_bound: float
    """Mean of `diversity`."""
    generalization: dict[str, float]
    """M of error read from the marginal along each axis (Eq. 5) at the point."""
    diversity: dict[str, float]
    """M of kappa read from the marginal along each axis at the point."""
    objective: float
    scanned: float
    """The least objective on the brute-force scan."""
    scanned_points: int
    solver: str
    reason: str
    """Why the solver is not GEKKO; empty if it is."""
    gap: float = 0.0
    """How far the objective lies above the scan's best, as a share of itself; negative if below."""
    certified: bool = False
    """Whether the gap is within `TOLERANCE`."""

    def __post_init__(self) -> None:
        """The last two follow from the others."""
        gap = relative_gap(self.objective, self.scanned)
        msgspec.structs.force_setattr(self, "gap", gap)
        msgspec.structs.force_setattr(self, "certified", gap <= TOLERANCE)

    def along(self, axis: str) -> float:
        """The point's place on an axis of the cube."""
        place: float = getattr(self, "model_size" if axis == "weights" else axis)
        return place

    def rounded(self, digits: int) -> TradeOff:
        """To so many significant digits: a point holds shares and weight counts alike."""
        values = msgspec.structs.asdict(self)
        return TradeOff(**{key: _rounded(value, digits) for key, value in values.items()})


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item, digits) for key, item in value.items()}
    return value


def relative_gap(objective: float, scanned: float) -> float:
    """How far an objective lies above a scan's best, as a share of itself."""
    # The floor only matters where kappas below 0 bring the objective to 0.
    return (objective - scanned) / max(abs(objective), 1e-6)
