"""Muon, an optimiser of matrices (K. Jordan et al. 2024): small networks leave their first plateau sooner."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

__all__ = ["Muon", "orthogonal"]

_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial aσ + bσ³ + cσ⁵ that takes every singular value in (0, 1] near 1 within 5 steps."""


class Muon(torch.optim.Optimizer):
    """W ← W − lr · sqrt(max(1, rows / columns)) · orth(G + momentum · average of gradients).

    orth(USVᵀ) = UVᵀ up to the accuracy of Newton-Schulz: every direction of a matrix moves equally fast, and
    not only those that the gradient favours. Kernels of convolutions are matrices of one row per output
    channel. torch's own Muon takes matrices only.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move all parameters that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["momentum"])

    def _move(self, parameter: nn.Parameter, lr: float, momentum: float) -> None:
        gradient = parameter.grad
        assert gradient is not None
        average = self.state[parameter].setdefault("average", torch.zeros_like(gradient))
        average.lerp_(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(average, momentum).flatten(start_dim=1))
        rows, columns = update.shape
        parameter.sub_(lr * max(1.0, rows / columns) ** 0.5 * update.view(parameter.shape))


def orthogonal(matrix: Tensor) -> Tensor:
    """Nearly UVᵀ of USVᵀ: singular values from .7 to 1.2."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = _COEFFICIENTS
    x: Tensor = matrix / (matrix.norm() + 1e-7)
    for _ in range(_STEPS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x
