"""How many examples fit into memory at once.

A function of the network and of the memory limit; with the usual limit and networks of some hundred thousand
weights it is always the most that is asked for, so that the bits of a reading do not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from genbench.subject.subject import TrainedNetwork

__all__ = ["bytes_per_example", "fits", "fitting", "set_memory_limit"]

_MOST = 2**30
_SHARE = 4
_budget = _MOST


def set_memory_limit(limit: int) -> None:
    """Let what a batch keeps take a quarter of `limit` bytes, and a GB at most."""
    global _budget
    _budget = min(_MOST, limit // _SHARE)


def bytes_per_example(network: TrainedNetwork) -> int:
    """What a forward pass keeps of one example for its backward pass: twice two examples' less one's."""
    return max(1, _kept(network, 2) - _kept(network, 1))


def _kept(network: TrainedNetwork, count: int) -> int:
    own = {p.untyped_storage().data_ptr() for p in network.model.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = network.inputs[:1].repeat(count, *[1] * (network.inputs.ndim - 1))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = network.model(inputs)
        del outputs
    return sum(found.values()) + inputs.numel() * inputs.element_size()


def fitting(network: TrainedNetwork, most: int, copies: float = 1.0) -> int:
    """Examples in a batch: `most`, or halved as often as needed for `copies` of what a pass keeps to fit."""
    each = network.bytes_per_example * copies
    size = most
    while size > 1 and size * each > _budget:
        size = (size + 1) // 2
    return size


def fits(size: int) -> bool:
    """Whether so many bytes may be kept while passes are made."""
    return size <= _budget
