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

    Limits: defined for ReLU networks. Smooth activations, LeakyReLU and PReLU act as ReLU, gates as 1,
    attention as the mean over tokens; a layer norm acts with the spread it has on the training set, as batch
    norm does with its running statistics. So it does not move where a norm layer takes back what a weight
    gained, as under 000's Exp++ schedules, where that paper's path norm explodes: path_norm_unnormalised is
    that one. A batch norm that no layer stands before, as after the additions of a pre-activation network,
    cannot be folded: it acts here, with its running statistics, and is in no measure of weights' norms. A
    network that subtracts or multiplies activations is refused.
    """
    return _root_mean(subject, subject.log_path_sum())


@measure(category="path", paper="000 A", cost="low")
def path_norm_unnormalised(subject: Subject) -> float:
    """Norm over all paths from input to output, as if there were no norm layers.

    sqrt(C / m), C as in path_norm of the network as it is, not folded, with every norm layer (batch, layer,
    group, instance) taken for the identity: its scale and shift, and what it divides by, are left out. This
    is the path norm that grows under the Exp++ schedules of 000 (section 6, App. H), in which weights before
    norm layers grow and the function stays.

    Limits: it changes when weights before a norm layer are rescaled, though the function does not.
    Activations and attention act as in path_norm. In a network without norm layers it is path_norm.
    """
    return _root_mean(subject, subject.log_path_sum(normalised=False))


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


MEASURES = [path_norm, path_norm_unnormalised, path_norm_over_margin]
