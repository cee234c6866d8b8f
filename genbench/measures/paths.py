"""Path norms: sums over all input-output paths of products of squared weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench.errors import NotApplicable
from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DATA = frozenset({"weights", "training_data"})


@measure(category="path", needs=_DATA, paper="001 (27)", cost="low", version="2")
def path_norm(subject: Subject) -> float:
    """Norm over all paths from input to output.

    sqrt(C / m); C = the sum of the logits of the network with every parameter of the folded network
    (biases too) squared, on an input of ones, computed in logarithms. It does not change when units are
    permuted or when consecutive ReLU layers are rescaled.

    Limits: defined for ReLU networks. Smooth activations act as ReLU, gates as 1, attention as the mean over
    tokens; a layer norm acts with the spread it has on the training set, as batch norm does with its running
    statistics. A network that subtracts or multiplies activations is refused.
    """
    return _root_mean(subject, subject.log_path_sum())


@measure(category="path", needs=_DATA, paper="001 (26)", cost="low", version="2")
def path_norm_over_margin(subject: Subject) -> float:
    """Path norm divided by the 10th-percentile margin.

    sqrt(C / m) with C = path sum / gamma². Limits: as path_norm.
    """
    return _root_mean(subject, subject.log_path_sum() - 2 * math.log(subject.margin()))


def _root_mean(subject: Subject, log_c: float) -> float:
    """sqrt(C / m), from log C."""
    try:
        return math.exp(0.5 * (log_c - math.log(subject.m)))
    except OverflowError:
        raise NotApplicable(
            f"the path norm is beyond the range of double precision; its logarithm is {log_c / 2:.6g}"
        ) from None


MEASURES = [path_norm, path_norm_over_margin]
