"""Ends training at a given training loss, so that networks which are compared fit their data equally well.

The loss is that of all training images in evaluation mode: as they are, with the labels that were trained on.
It is looked at after every epoch. If it has passed the target, bisection over the networks after the batches
of that epoch finds two neighbours with the target between them, and bisection on the straight line between
these two, where the loss is continuous, the network that is returned: a step of training, let alone an epoch,
would miss the target by more than adaptations may differ.
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
_HALVINGS = 12
_KEPT = 2**28
"""Bytes of the networks of an epoch that are kept, at most; of large ones not that of every batch."""


class LossTarget:
    """Watches one network while it is trained."""

    def __init__(
        self, network: nn.Module, images: Inputs, labels: Tensor, target: float, *, batches: int
    ) -> None:
        self._network, self._images, self._labels, self._target = network, images, labels, target
        start = _state(network)
        size = sum(value.numel() * value.element_size() for value in start.values())
        self._every = max(1, -(-batches * size // _KEPT))
        self._batches = 0
        self._states = [start]
        """Since the last look: first the network as it was then, last the present one."""
        self.loss = float("inf")
        """When it was last looked at."""

    def stepped(self) -> None:
        """A batch was trained on."""
        self._batches += 1
        if self._batches % self._every == 0:
            self._states.append(_state(self._network))

    def reached(self) -> bool:
        """Look; if the loss has passed the target, set the network to where it did."""
        states = [*self._states, _state(self._network)]
        self.loss = self._measured()
        if self.loss > self._target:
            self._states = states[-1:]
            return False
        before, after = 0, len(states) - 1
        while after - before > 1 and not self._met:
            middle = (before + after) // 2
            before, after = (middle, after) if self._above(states[middle]) else (before, middle)
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            if self._met:
                break
            share = (low + high) / 2
            above = self._above(_between(states[before], states[after], share))
            low, high = (share, high) if above else (low, share)
        return True

    @property
    def _met(self) -> bool:
        return abs(self.loss - self._target) <= _TOLERANCE * self._target

    def _above(self, state: dict[str, Tensor]) -> bool:
        """Whether the loss is still above the target there; the network is then in that state."""
        self._network.load_state_dict(state)
        self.loss = self._measured()
        return self.loss > self._target

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
