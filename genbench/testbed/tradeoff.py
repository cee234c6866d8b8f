"""The trade-off point of a cube (004 Eq. 4), solved with GEKKO and certified by brute force.

S = the sum of the six statistics is trilinear between grid points, so inside one box of the grid the
objective is smooth. A scan of all boxes finds the promising ones; IPOPT solves those.

Points are written in grid coordinates: (1.5, 0, 2) lies half-way between zero-shot levels 1 and 2, at SSIM
level 0 and model 2. Interpolation, boxes and scans are then the same for every cube.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genbench.errors import UserError
from genbench.testbed.cube import AXES, DIMS, STATISTICS, check_cube, marginals, over_adaptations
from genbench.testbed.tradeoff_point import TOLERANCE, TradeOff, relative_gap

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["SCALES", "TradeOff", "trade_off"]

SCALES = ("normalised", "squared", "released")

# Intervals of a whole axis, and the fewest of one box. The scan that certifies is finer than the one that
# chooses boxes and shares few of its points.
_CHOOSING = (64, 3)
_CERTIFYING = (120, 4)

# A box is promising if its best scanned point is this close to the best of all, as a share of what the best
# points of all boxes span; the scan itself errs by much less. IPOPT takes some 20 ms a box.
_MARGIN = 0.01
_MOST_BOXES = 8

_SECONDS = 20  # after which GEKKO's binary counts as hanging
_SOLVER_SAYS = "@error"  # in what GEKKO raises if its binary ran and reports a failure

Array = NDArray[np.float64]


def trade_off(
    cube: xr.Dataset, scales: str = "normalised", weights: tuple[float, float, float] = (1, 1, 1)
) -> TradeOff:
    """The point of the cube's continuous box that minimises S + ‖C‖² (Eq. 4) in one of three readings.

    ::

        normalised   Ŝ + (l1·c1² + l2·c2² + l3·c3²)/(l1 + l2 + l3), c1 ≥ û, c2 ≥ ŝ, c3 ≥ ŵ
                     Ŝ = (S − min S)/(max S − min S)
                     û = 1 − zero-shot, ŝ = SSIM, ŵ = weights, each scaled to [0, 1] over its axis
        squared      S + l1·c1² + l2·c2² + l3·c3², c1 ≥ 1 − zero-shot, c2 ≥ SSIM (raw), c3 ≥ ŵ
        released     squared + ½(exp(−10(v − lb)) + exp(−10(ub − v))) for v = s, u, w, c1, c2, c3

    In `normalised` the weights are relative: only their ratios count, and equal ones give the thirds of
    SPEC.md.

    The paper's table has one generalization bound and one diversity bound, although each is read at the point
    from three marginals (one per axis), which it expects to agree. They do not quite, so the bound is the
    mean of the three, and the three stand beside it.

    GEKKO's status is not trusted: whatever it returns is evaluated here and compared with the scan. If it
    cannot run, or ends more than `TOLERANCE` above the scan, SciPy solves the same boxes and `reason` says
    why.
    """
    cube = over_adaptations(check_cube(cube))
    objective = _make_objective(cube, scales, weights)
    starts = _promising(objective)
    best_scanned, scanned, scanned_points = _brute_force(objective)

    solver, reason = "GEKKO IPOPT", ""
    points, failure = _solve_with_gekko(objective, starts)
    if not points:
        verdict = "GEKKO found no solution" if _SOLVER_SAYS in failure else "GEKKO cannot run here"
        reason = f"{verdict} ({failure})"
    elif (gap := relative_gap(min(map(objective.at, points)), scanned)) > TOLERANCE:
        reason = f"GEKKO ended above the brute-force scan by {gap:.1g} of the objective"
    if reason:
        solver = "SciPy L-BFGS-B"
        points += _solve_with_scipy(objective, [*starts, best_scanned])
    point = min(points, key=objective.at)

    at = {
        axis: float(np.interp(p, np.arange(cube[axis].size), cube[axis]))
        for axis, p in zip(AXES, point, strict=True)
    }
    curves = marginals(cube)
    generalization, diversity = (
        {
            axis: float(np.interp(at[axis], cube[axis], curves[dim][statistic]))
            for dim, axis in zip(DIMS, AXES, strict=True)
        }
        for statistic in ("error_mean", "kappa_mean")
    )
    return TradeOff(
        scales=scales,
        weights=weights,
        ssim=at["ssim"],
        zero_shot=at["zero_shot"],
        model_size=at["weights"],
        generalization_bound=float(np.mean(list(generalization.values()))),
        diversity_bound=float(np.mean(list(diversity.values()))),
        generalization=generalization,
        diversity=diversity,
        objective=objective.at(point),
        scanned=scanned,
        scanned_points=scanned_points,
        solver=solver,
        reason=reason,
    )


@dataclass(frozen=True)
class _Price:
    """What an axis adds to the objective: the least l·c² over bounds c ≥ v, with barriers if `released`."""

    levels: Array
    """v at the grid points: û, ŝ or ŵ, raw or scaled."""
    weight: float
    barrier: bool

    @property
    def low(self) -> float:
        return float(self.levels.min())

    @property
    def high(self) -> float:
        return float(self.levels.max())

    def __call__(self, v: Array) -> Array:
        c = np.maximum(v, self._free_bound())
        if not self.barrier:
            return self.weight * c**2
        return self.weight * c**2 + self._walls(c) + self._walls(v)

    def _walls(self, x: Array) -> Array:
        return 0.5 * (np.exp(-10 * (x - self.low)) + np.exp(-10 * (self.high - x)))

    def _free_bound(self) -> float:
        """The c that costs least where v does not hold it; the cost is convex, so c = max(v, this)."""
        if not self.barrier:
            return self.low
        from scipy.optimize import brentq

        def slope(c: float) -> float:
            walls = np.exp(-10 * (self.high - c)) - np.exp(-10 * (c - self.low))
            return float(2 * self.weight * c + 5 * walls)

        return self.low if slope(self.low) >= 0 else float(brentq(slope, self.low, self.high, xtol=1e-14))


@dataclass(frozen=True)
class _Objective:
    """S (or Ŝ) plus the three prices, over the continuous box of the cube."""

    table: Array
    prices: tuple[_Price, _Price, _Price]

    def on_grid(self, levels: list[Array]) -> Array:
        """Values at all combinations of three lists of grid coordinates."""
        values, total = self.table, np.zeros(())
        for axis, (coordinates, price) in enumerate(zip(levels, self.prices, strict=True)):
            # Linear interpolation as a matrix: row = the share of every level in a coordinate.
            shares = np.maximum(0, 1 - np.abs(coordinates[:, None] - np.arange(self.table.shape[axis])))
            values = np.moveaxis(np.tensordot(shares, values, axes=(1, axis)), 0, axis)
            total = total[..., None] + price(shares @ price.levels)
        return values + total

    def at(self, point: Array) -> float:
        """Value at one point."""
        return float(self.on_grid([point[i : i + 1] for i in range(3)]).item())


def _make_objective(cube: xr.Dataset, scales: str, weights: tuple[float, float, float]) -> _Objective:
    if scales not in SCALES:
        raise UserError(f"no scales {scales!r} of the trade-off; there are {', '.join(SCALES)}")
    if len(weights) != 3 or not all(0 <= w < np.inf for w in weights) or not any(weights):
        raise UserError(
            f"the weights of the trade-off are {weights}; give three numbers of at least 0, not all 0"
        )
    for axis in AXES:
        if cube[axis].size < 2:
            raise UserError(f"the cube has one level of {axis}; a trade-off needs at least two on every axis")
    table = np.asarray(sum(cube[name].values.astype(np.float64) for name in STATISTICS))
    bounds = [1 - cube["zero_shot"].values, cube["ssim"].values, _scaled(cube["weights"].values)]
    prices = np.array(weights, dtype=np.float64)
    if scales == "normalised":
        table, bounds, prices = _scaled(table), [_scaled(v) for v in bounds], prices / prices.sum()
    first, second, third = (
        _Price(v, float(price), scales == "released") for v, price in zip(bounds, prices, strict=True)
    )
    return _Objective(table, (first, second, third))


def _scaled(values: ArrayLike) -> Array:
    x = np.asarray(values, dtype=np.float64)
    span = np.ptp(x)
    return (x - x.min()) / span if span > 0 else np.zeros_like(x)


def _subdivisions(boxes: int, density: tuple[int, int]) -> int:
    whole_axis, fewest = density
    return max(fewest, -(-whole_axis // boxes))


def _promising(objective: _Objective) -> list[Array]:
    """Best scanned point of each promising box, the best first, moved off the faces it may share."""
    boxes = [n - 1 for n in objective.table.shape]
    inside = [np.linspace(0, 1, _subdivisions(n, _CHOOSING) + 1) for n in boxes]
    # Both ends of each box are scanned, so that every box has its own points.
    levels = [(np.arange(n)[:, None] + t).ravel() for n, t in zip(boxes, inside, strict=True)]
    shape = [size for n, t in zip(boxes, inside, strict=True) for size in (n, len(t))]
    values = objective.on_grid(levels).reshape(shape).transpose(0, 2, 4, 1, 3, 5)
    values = values.reshape(int(np.prod(boxes)), -1)
    least = values.min(axis=1)
    order = np.argsort(least, kind="stable")[:_MOST_BOXES]
    order = order[least[order] <= least.min() + _MARGIN * np.ptp(least)]
    corners = np.column_stack(np.unravel_index(order, boxes))
    places = np.unravel_index(values[order].argmin(axis=1), [len(t) for t in inside])
    local = np.column_stack([t[place] for t, place in zip(inside, places, strict=True)])
    # The box is told by the integer part, and an interior-point solver likes to start inside.
    return list(corners + np.clip(local, 1e-6, 1 - 1e-6))


def _brute_force(objective: _Objective) -> tuple[Array, float, int]:
    """Best point of a fine scan of the whole cube, its value, and how many points were scanned."""
    levels = []
    for n in objective.table.shape:
        intervals = (n - 1) * _subdivisions(n - 1, _CERTIFYING)
        levels.append(np.arange(intervals + 1) * ((n - 1) / intervals))
    values = objective.on_grid(levels)
    best = np.unravel_index(int(values.argmin()), values.shape)
    point = np.array([axis[i] for axis, i in zip(levels, best, strict=True)])
    return point, float(values[best]), values.size


def _box(objective: _Objective, point: Array) -> Array:
    """Lower corner of a box that holds the point."""
    last = np.array(objective.table.shape) - 2
    return np.asarray(np.minimum(np.floor(point), last))


def _solve_with_gekko(objective: _Objective, starts: list[Array]) -> tuple[list[Array], str]:
    """Where IPOPT ends in the box of each start, and what went wrong last; no point if GEKKO cannot run."""
    points: list[Array] = []
    failure = ""
    for start in starts:
        try:
            points.append(_solve_box(objective, start))
        except Exception as problem:  # GEKKO raises bare exceptions for all that can go wrong
            failure = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
            if _SOLVER_SAYS not in failure:
                # Not about this box: the binary does not run, or hangs, and will do so again.
                break
    return points, failure


def _solve_box(objective: _Objective, start: Array) -> Array:
    """Minimise over one box with IPOPT: t in [0, 1]³ inside the box, and the three bounds c."""
    from gekko import GEKKO

    corner = _box(objective, start)
    i, j, k = corner.astype(int)
    # Corner values to the coefficients of t0^a·t1^b·t2^c, one axis at a time.
    coefficients = objective.table[i : i + 2, j : j + 2, k : k + 2]
    for axis in range(3):
        coefficients = np.moveaxis(
            np.tensordot([[1.0, 0.0], [-1.0, 1.0]], coefficients, axes=(1, axis)), 0, axis
        )
    model = GEKKO(remote=False)
    try:
        # GEKKO prints what its binary writes to standard error, where a table or JSON should be.
        with contextlib.redirect_stdout(io.StringIO()):
            t = [model.Var(value=float(x), lb=0, ub=1) for x in start - corner]
            total = sum(
                float(coefficient) * t[0] ** a * t[1] ** b * t[2] ** c if a + b + c else float(coefficient)
                for (a, b, c), coefficient in np.ndenumerate(coefficients)
            )
            for axis, price in enumerate(objective.prices):
                total += _priced(model, price, corner[axis], start[axis], t[axis])
            model.Minimize(total)
            model.options.SOLVER = 3
            model.options.OTOL = model.options.RTOL = 1e-9
            model.options.MAX_TIME = _SECONDS
            model.solve(disp=False)
            end = np.array([x.value[0] for x in t], dtype=np.float64)
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            model.cleanup()
    if not np.isfinite(end).all():
        raise ArithmeticError("the solver returned no number")
    return corner + np.clip(end, 0, 1)


def _priced(model: Any, price: _Price, corner: float, start: float, t: Any) -> Any:
    """The terms of one axis inside its box, with c as a variable held above v by a constraint."""
    first, second = price.levels[int(corner)].item(), price.levels[int(corner) + 1].item()
    v = first + (second - first) * t
    c = model.Var(value=float(first + (second - first) * (start - corner)), lb=price.low, ub=price.high)
    model.Equation(c >= v)
    total = price.weight * c**2
    if price.barrier:
        for x in (v, c):
            total += 0.5 * (model.exp(-10 * (x - price.low)) + model.exp(-10 * (price.high - x)))
    return total


def _solve_with_scipy(objective: _Objective, starts: list[Array]) -> list[Array]:
    """The same boxes from the same starts, with the bounds c already at their best."""
    from scipy.optimize import minimize

    points = []
    for start in starts:
        corner = _box(objective, start)
        result = minimize(
            objective.at,
            start,
            method="L-BFGS-B",
            bounds=[(low, low + 1) for low in corner],
            options={"ftol": 1e-14, "gtol": 1e-9},
        )
        points.append(np.clip(result.x, corner, corner + 1))
    return points
