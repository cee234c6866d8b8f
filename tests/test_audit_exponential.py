"""Exp++ (000, Theorem 6.2): as printed it does not hold, with other indices it does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genbench.audit.exponential import decay_at, rate_at

RATE, GAMMA = 0.1, 0.9


def loss(theta: Tensor) -> Tensor:
    """Of the direction of theta alone."""
    unit = theta / theta.norm()
    pull = torch.linspace(-1, 1, len(theta), dtype=torch.float64)
    total: Tensor = pull @ unit + (unit**3).sum() + torch.cos(3 * unit).prod()
    return total


def gradient(theta: Tensor) -> Tensor:
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(loss(theta), theta)[0]


def start() -> Tensor:
    return torch.randn(12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def plain(steps: int, decay: float) -> list[Tensor]:
    """Eq. (A), by torch's own optimizer."""
    theta = start().requires_grad_()
    optimizer = torch.optim.SGD([theta], lr=RATE, momentum=GAMMA, weight_decay=decay)
    path = [theta.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        loss(theta).backward()
        optimizer.step()
        path.append(theta.detach().clone())
    return path


def printed(steps: int, decay: float, alpha: float) -> list[Tensor]:
    """Eq. (B) with Eqs. (8) and (9), letter by letter: the step to t takes eta~_t and lambda~_t."""
    xi = (alpha**2 - alpha * (1 - decay * RATE + GAMMA) + GAMMA) / RATE
    path = [start()]
    before, now = alpha * start(), start()
    for t in range(1, steps + 1):
        eta, earlier = RATE * alpha ** (-2 * t - 1), RATE * alpha ** (-2 * (t - 1) - 1)
        shrink = xi * alpha ** (2 * t - 1)
        step = eta * (GAMMA * (now - before) / earlier - gradient(now) - shrink * now)
        before, now = now, now + step
        path.append(now)
    return path


def corrected(steps: int, decay: float, alpha: float) -> list[Tensor]:
    """The recursion of `genbench.audit.exponential`, by its schedules."""
    path = [start()]
    before, now = alpha * start(), start()
    for t in range(steps):
        eta, earlier = rate_at(t, alpha, RATE), rate_at(t - 1, alpha, RATE)
        shrink = decay_at(t, alpha, RATE, GAMMA, decay)
        step = eta * (GAMMA * (now - before) / earlier - gradient(now) - shrink * now)
        before, now = now, now + step
        path.append(now)
    return path


def off(path: list[Tensor], reference: list[Tensor], alpha: float, t: int) -> float:
    """|alpha^t theta~_t − theta_t| / |theta_t|."""
    return float((alpha**t * path[t] - reference[t]).norm() / reference[t].norm())


@pytest.mark.parametrize(
    ("alpha", "decay"), [(0.9, 0.0), (0.8, 0.0), (0.995, 0.0), (0.88, 0.01), (0.99, 0.05)]
)
def test_the_corrected_schedules_go_through_the_same_functions(alpha: float, decay: float) -> None:
    reference, path = plain(40, decay), corrected(40, decay, alpha)
    assert off(path, reference, alpha, 1) < 1e-14
    assert off(path, reference, alpha, 40) < 1e-11
    assert float(loss(path[40])) == pytest.approx(float(loss(reference[40])), abs=1e-12)
    assert float(path[40].norm() / reference[40].norm()) == pytest.approx(alpha**-40, rel=1e-9)


def test_the_printed_theorem_does_not_hold() -> None:
    reference, path = plain(40, 0.0), printed(40, 0.0, 0.9)
    assert off(path, reference, 0.9, 1) > 1e-3
    assert off(path, reference, 0.9, 40) > 1e-2
    assert abs(float(loss(path[40]) - loss(reference[40]))) > 1e-6


def test_weight_decay_may_be_negative() -> None:
    """Between alpha_− = gamma and 1, without weight decay: no optimizer takes that as `weight_decay`."""
    assert decay_at(3, 0.95, RATE, GAMMA, 0.0) < 0 < decay_at(3, 0.85, RATE, GAMMA, 0.0)
    assert decay_at(0, 1.0, RATE, GAMMA, 0.02) == pytest.approx(0.02)
    assert math.isclose(rate_at(-1, 0.9, RATE), 0.09)
