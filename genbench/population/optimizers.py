"""SGD with momentum, Adam and RMSProp on stacked parameters, with one learning rate per network."""

from __future__ import annotations

import torch
from torch import Tensor

from genbench.errors import UserError

__all__ = ["OPTIMIZERS", "StackedOptimizer"]

OPTIMIZERS = ("sgd", "adam", "rmsprop")
_BETA1, _BETA2, _ALPHA, _EPS = 0.9, 0.999, 0.99, 1e-8
"""The defaults of `torch.optim`, whose updates these are."""


class StackedOptimizer:
    """Steps theta (networks, parameters) in place; weight decay is added to the gradient, as L2."""

    def __init__(
        self, name: str, theta: Tensor, learning_rate: Tensor, momentum: Tensor, weight_decay: Tensor
    ) -> None:
        if name not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
        self._name = name
        given = {"rate": learning_rate, "momentum": momentum, "decay": weight_decay}
        # Rounded before they are moved: not every device has float64.
        self._columns = {
            name: values[:, None].to(theta.dtype).to(theta.device) for name, values in given.items()
        }
        self._velocity = torch.zeros_like(theta)
        self._squares = torch.zeros_like(theta if name != "sgd" else theta[:, :0])
        self._steps = 0
        # Asked once, not at every step: a device would have to be waited for.
        self._decays = bool(weight_decay.any())

    def keep(self, places: Tensor) -> None:
        """Forget all networks but those at `places`."""
        self._columns = {name: column[places] for name, column in self._columns.items()}
        self._velocity, self._squares = self._velocity[places], self._squares[places]
        self._decays = bool(self._columns["decay"].any())

    @torch.no_grad()
    def step(self, theta: Tensor, gradient: Tensor, factor: float = 1.0) -> None:
        """One update of all networks; `factor` is the schedule's part of the learning rate."""
        self._steps += 1
        decay, momentum = self._columns["decay"], self._columns["momentum"]
        rate = self._columns["rate"] * factor
        if self._decays:
            gradient = gradient + decay * theta
        if self._name == "sgd":
            theta.sub_(self._velocity.mul_(momentum).add_(gradient) * rate)
        elif self._name == "adam":
            self._velocity.lerp_(gradient, 1 - _BETA1)
            self._squares.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
            spread = self._squares.sqrt().div_((1 - _BETA2**self._steps) ** 0.5).add_(_EPS)
            theta.sub_(self._velocity / spread * (rate / (1 - _BETA1**self._steps)))
        else:
            self._squares.mul_(_ALPHA).addcmul_(gradient, gradient, value=1 - _ALPHA)
            step = gradient / self._squares.sqrt().add_(_EPS)
            theta.sub_(self._velocity.mul_(momentum).add_(step) * rate)
