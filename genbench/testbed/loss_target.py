"""Ends training at a given training loss, so that networks which are compared fit their data equally well.

The loss is that of all training images in evaluation mode: as they are, with the labels that were trained on.
It is looked at after every epoch, and every quarter of one when it is near. Between two looks it passes the
target somewhere on the straight line between the two networks, being continuous there; bisection finds the
place. A step of training, let alone an epoch, would miss the target by more than adaptations may differ.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genbench.subject.inputs import Inputs
from genbench.testbed.batches import fixed_batch

__all__ = ["LossTarget", "evaluation_logits"]

_TOLERANCE = 0.01
"""How far the loss may be from the target, as a share of it."""
_NEAR = 1.25
"""How many times the target the loss is when it begins to be looked at within an epoch."""
_LOOKS = 4
"""In an epoch, then."""
_HALVINGS = 12


class LossTarget:
    """Watches one network while it is trained."""

    def __init__(self, network: nn.Module, images: Inputs, labels: Tensor, target: float) -> None:
        self._network, self._images, self._labels, self._target = network, images, labels, target
        self._before = _state(network)
        self.loss = float("inf")
        """When it was last looked at."""

    def due(self, batch: int, batches: int) -> bool:
        """Whether to look after this batch of an epoch, the first being 1."""
        if batch == batches:
            return True
        near = self.loss <= _NEAR * self._target
        return near and batch * _LOOKS // batches > (batch - 1) * _LOOKS // batches

    def reached(self) -> bool:
        """Look; if the loss has passed the target, set the network to where it did."""
        now = _state(self._network)
        self.loss = self._measured()
        if self.loss > self._target:
            self._before = now
            return False
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            if abs(self.loss - self._target) <= _TOLERANCE * self._target:
                break
            middle = (low + high) / 2
            self._network.load_state_dict(_between(self._before, now, middle))
            self.loss = self._measured()
            low, high = (middle, high) if self.loss > self._target else (low, middle)
        return True

    def _measured(self) -> float:
        mode = self._network.training
        self._network.eval()
        logits = evaluation_logits(self._network, self._images)
        self._network.train(mode)
        return float(F.cross_entropy(logits, self._labels))


def evaluation_logits(network: nn.Module, images: Inputs) -> Tensor:
    """(n, classes) of all images, on the CPU; the network must be in evaluation mode."""
    with torch.inference_mode():
        return torch.cat([network(part).cpu() for part in images.split(fixed_batch(images))])


def _state(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def _between(first: dict[str, Tensor], second: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """The network at this share of the way; counters are those of the second."""
    return {
        name: first[name].lerp(value, share) if value.is_floating_point() else value
        for name, value in second.items()
    }
