"""Outputs on the training set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from genbench.errors import NotApplicable
from genbench.subject.fitting import fitting

if TYPE_CHECKING:
    from genbench.subject.parts import Part, PartSource
    from genbench.subject.subject import TrainedNetwork

__all__ = ["logits", "margins"]


def logits(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Outputs of the network, (m, classes)."""
    with torch.no_grad():
        return {"logits": torch.cat([network.model(x) for x in network.inputs.split(fitting(network, 256))])}


def margins(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    """Logit of the label minus the largest other logit, (m,)."""
    outputs = parts.get("logits")["logits"]
    if outputs.shape[1] < 2:
        raise NotApplicable("the network has one output, and a margin needs two")
    label = network.labels[:, None]
    others = outputs.scatter(1, label, -torch.inf)
    return {"margins": outputs.gather(1, label)[:, 0] - others.amax(1)}
