"""Path norms: sums over all input-output paths of products of squared weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.contract import measure
from genbench.errors import NotApplicable

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]


@measure(category="path", paper="001 (27)")
def path_norm(subject: Subject) -> float:
    """Norm over all paths from input to output.

    sqrt(C / m); C = the sum of the logits of the network with every parameter of the folded network
    (biases too) squared, on an input of ones. It does not change when units are permuted or when
    consecutive ReLU layers are rescaled.
    """
    return math.sqrt(_path_sum(subject) / subject.m)


@measure(category="path", needs={"weights", "training_data"}, paper="001 (26)")
def path_norm_over_margin(subject: Subject) -> float:
    """Path norm divided by the 10th-percentile margin.

    sqrt(C / m) with C = path sum / gamma².
    """
    return math.sqrt(_path_sum(subject) / subject.m) / subject.margin()


def _path_sum(subject: Subject) -> float:
    squared = subject.folded().module.double()
    _require_homogeneous(squared)
    with torch.no_grad():
        for parameter in squared.parameters():
            parameter.square_()
        total = squared(torch.ones(1, *subject.input_shape, dtype=torch.float64)).sum().item()
    if not math.isfinite(total):
        raise NotApplicable("the path norm is beyond the range of double precision")
    return float(total)


def _require_homogeneous(module: torch.nn.Module) -> None:
    nn = torch.nn
    known = (
        nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.ReLU, nn.Identity, nn.Flatten, nn.Dropout,
        nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d, nn.AdaptiveMaxPool2d,
    )  # fmt: skip
    for name, part in module.named_modules():
        if not any(part.children()) and part is not module and not isinstance(part, known):
            raise NotApplicable(
                f"path norms are defined for ReLU networks here; {name} is a {type(part).__name__}"
            )


MEASURES = [path_norm, path_norm_over_margin]
