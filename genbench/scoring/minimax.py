"""The lowest point of the maximum of many convex quadratics in the plane, with a proof that it is lowest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Minimax", "Quadratics", "solve_minimax"]

Floats = NDArray[np.float64]
_ITERATIONS = 60
_STEP = 0.995
_TINY = 1e-200


@dataclass(frozen=True, eq=False)
class Minimax:
    """Solutions of a batch of problems."""

    a: Floats
    b: Floats
    value: Floats
    """The maximum over environments at (a, b)."""
    bound: Floats
    """No (a, b) has a lower maximum than this: the dual value of the multipliers."""

    @property
    def gap(self) -> Floats:
        """How far the value can be from the optimum."""
        return self.value - self.bound


@dataclass(frozen=True, eq=False)
class Quadratics:
    """f(a, b) = xx·a² + 2·x·a·b + b² − 2·xy·a − 2·y·b + yy, the mean squared error of a·x + b against y.

    Each coefficient is a mean over an environment, (batch, environments).
    """

    xx: Floats
    x: Floats
    xy: Floats
    y: Floats
    yy: Floats

    def at(self, a: Floats, b: Floats) -> Floats:
        """(batch, environments) values at one point per problem."""
        a, b = a[:, None], b[:, None]
        return a * (self.xx * a + 2 * (self.x * b - self.xy)) + b * (b - 2 * self.y) + self.yy

    def lowest_mean(self, weights: Floats) -> Floats:
        """(batch,) min over a ≥ 0 and b of the weighted mean of f: a lower bound of the minimax value."""
        xx, x, xy, y, yy = (
            np.einsum("pe,pe->p", weights, c) for c in (self.xx, self.x, self.xy, self.y, self.yy)
        )
        variance, covariance = xx - x * x, xy - x * y
        slope = np.divide(covariance, variance, out=np.zeros_like(x), where=variance > 1e-14 * xx)
        slope = np.maximum(slope, 0.0)
        # b = y − slope·x is the best intercept of any slope.
        return np.asarray(yy - y * y + slope * (slope * variance - 2 * covariance))

    def take(self, rows: NDArray[np.bool_]) -> Quadratics:
        """Some of the problems."""
        return Quadratics(self.xx[rows], self.x[rows], self.xy[rows], self.y[rows], self.yy[rows])


def solve_minimax(problems: Quadratics, tolerance: float = 1e-13) -> Minimax:
    """min over a ≥ 0, b of the maximum over environments of f, all problems at once.

    Minimise t subject to f_e(a, b) + s_e = t with s ≥ 0 and a ≥ 0, by Mehrotra's predictor-corrector
    interior-point method. The multipliers, scaled to sum to 1, give a bound from below through
    `Quadratics.lowest_mean`; a problem is done when its value is within `tolerance` of it.
    """
    count = len(problems.xx)
    values, bounds = np.full(count, np.inf), np.full(count, -np.inf)
    solved_a, solved_b = np.zeros(count), np.zeros(count)
    left = np.arange(count)
    state = _start(problems)
    for _ in range(_ITERATIONS):
        value, bound = problems.at(state.a, state.b).max(axis=1), problems.lowest_mean(state.shares)
        lower = value < values[left]
        solved_a[left] = np.where(lower, state.a, solved_a[left])
        solved_b[left] = np.where(lower, state.b, solved_b[left])
        values[left] = np.minimum(value, values[left])
        bounds[left] = np.maximum(bound, bounds[left])
        going = values[left] - bounds[left] > tolerance
        if not going.any():
            break
        left, problems, state = left[going], problems.take(going), state.take(going)
        state = _advance(problems, state)
    return Minimax(solved_a, solved_b, values, bounds)


@dataclass(frozen=True, eq=False)
class _State:
    a: Floats
    b: Floats
    t: Floats
    slack: Floats
    """(batch, environments) s_e, which is t − f_e in the end."""
    multiplier: Floats
    """(batch, environments) of f_e + s_e = t."""
    sloped: Floats
    """(batch,) multiplier of a ≥ 0."""

    @property
    def shares(self) -> Floats:
        return np.asarray(self.multiplier / self.multiplier.sum(axis=1, keepdims=True))

    def take(self, rows: NDArray[np.bool_]) -> _State:
        return _State(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def plus(self, length: Floats, step: _State) -> _State:
        """The state after a step of that length; what must stay positive does, even where it underflows."""
        wide = length[:, None]
        return _State(
            np.maximum(self.a + length * step.a, _TINY),
            self.b + length * step.b,
            self.t + length * step.t,
            np.maximum(self.slack + wide * step.slack, _TINY),
            np.maximum(self.multiplier + wide * step.multiplier, _TINY),
            np.maximum(self.sloped + length * step.sloped, _TINY),
        )

    def longest(self, step: _State) -> Floats:
        """(batch,) the length at which the first slack or multiplier would reach 0."""
        lengths = np.full(len(self.a), np.inf)
        for name in ("a", "slack", "multiplier", "sloped"):
            old, change = getattr(self, name), getattr(step, name)
            ratio = np.divide(-old, change, out=np.full_like(old, np.inf), where=change < 0)
            lengths = np.minimum(lengths, ratio if ratio.ndim == 1 else ratio.min(axis=1))
        return lengths

    def complementarity(self) -> Floats:
        """(batch,) mean of slack times multiplier, which goes to 0."""
        total = np.einsum("pe,pe->p", self.slack, self.multiplier) + self.a * self.sloped
        return np.asarray(total / (self.slack.shape[1] + 1))


def _start(problems: Quadratics) -> _State:
    a, b = np.ones(len(problems.xx)), problems.y.mean(axis=1)
    values = problems.at(a, b)
    t = values.max(axis=1)
    slack = np.maximum(t[:, None] - values, 0.1 * np.maximum(t, 1e-3)[:, None])
    multiplier = np.full_like(slack, 1 / slack.shape[1])
    return _State(a, b, t, slack, multiplier, np.full_like(a, 0.1))


def _advance(problems: Quadratics, state: _State) -> _State:
    """One predictor and one corrector step with the same matrix."""
    system = _System(problems, state)
    measure = state.complementarity()
    predictor = system.solve(-state.slack * state.multiplier, -state.a * state.sloped)
    length = np.minimum(1.0, state.longest(predictor))
    reached = state.plus(length, predictor).complementarity()
    aim = measure * np.minimum(1.0, reached / measure) ** 3
    corrector = system.solve(
        aim[:, None] - state.slack * state.multiplier - predictor.slack * predictor.multiplier,
        aim - state.a * state.sloped - predictor.a * predictor.sloped,
    )
    return state.plus(np.minimum(1.0, _STEP * state.longest(corrector)), corrector)


class _System:
    """The Newton equations of one state, reduced to (a, b, t)."""

    def __init__(self, problems: Quadratics, state: _State) -> None:
        self.state = state
        a, b = state.a[:, None], state.b[:, None]
        self.along_a = 2 * (problems.xx * a + problems.x * b - problems.xy)
        self.along_b = 2 * (problems.x * a + b - problems.y)
        self.residual = problems.at(state.a, state.b) - state.t[:, None] + state.slack
        weight = self.weight = state.multiplier / state.slack
        total = state.multiplier.sum(axis=1)
        by_a, by_b = weight * self.along_a, weight * self.along_b
        matrix = np.empty((len(total), 3, 3))
        matrix[:, 0, 0] = 2 * _dot(state.multiplier, problems.xx) + _dot(by_a, self.along_a)
        matrix[:, 0, 0] += state.sloped / state.a
        matrix[:, 0, 1] = matrix[:, 1, 0] = 2 * _dot(state.multiplier, problems.x) + _dot(by_a, self.along_b)
        matrix[:, 1, 1] = 2 * total + _dot(by_b, self.along_b)
        matrix[:, 0, 2] = matrix[:, 2, 0] = -by_a.sum(axis=1)
        matrix[:, 1, 2] = matrix[:, 2, 1] = -by_b.sum(axis=1)
        matrix[:, 2, 2] = weight.sum(axis=1)
        # A unit diagonal keeps the system solvable when slacks differ by many orders of magnitude.
        self.scale = 1 / np.sqrt(np.einsum("pii->pi", matrix))
        self.matrix = matrix * self.scale[:, :, None] * self.scale[:, None, :] + 1e-14 * np.eye(3)
        self.dual = np.stack(
            [
                _dot(state.multiplier, self.along_a) - state.sloped,
                _dot(state.multiplier, self.along_b),
                1 - total,
            ],
            axis=1,
        )

    def solve(self, target: Floats, target_sloped: Floats) -> _State:
        """The step that brings slack·multiplier to `target` more than it is, to first order."""
        state = self.state
        pull = (target + state.multiplier * self.residual) / state.slack
        right = -self.dual - np.stack(
            [
                _dot(pull, self.along_a) - target_sloped / state.a,
                _dot(pull, self.along_b),
                -pull.sum(axis=1),
            ],
            axis=1,
        )
        solved = np.linalg.solve(self.matrix, (self.scale * right)[:, :, None])[:, :, 0]
        a, b, t = (self.scale * solved).T
        slack = t[:, None] - self.along_a * a[:, None] - self.along_b * b[:, None] - self.residual
        multiplier = (target - state.multiplier * slack) / state.slack
        return _State(a, b, t, slack, multiplier, (target_sloped - state.sloped * a) / state.a)


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("pe,pe->p", first, second))
