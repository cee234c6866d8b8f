"""How likely the labels are under random networks of the same architecture (000 App. F)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.measures._estimates import jackknife_bias
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DELTA = _GAMMA = 0.05


def _error_bound(log_evidence: Tensor, n: int) -> Tensor:
    """The epsilon of 000 Eq. 24: 1 − exp(−(−log P(C(S)) + log n + log 1/delta + log 1/gamma) / (n − 1))."""
    slack = math.log(n) - math.log(_DELTA) - math.log(_GAMMA)
    return -torch.expm1(-(slack - log_evidence) / (n - 1))


@measure(
    category="function_space",
    needs={"weights", "training_data"},
    paper="000 (24)",
    cost="high",
    version="5",
)
def ml_pacbayes(subject: Subject) -> Estimate:
    """Marginal-likelihood PAC-Bayes bound of the architecture's Gaussian process.

    mean over classes of epsilon, −log(1 − epsilon) = (log 1/P(C(S)) + log n + log 1/delta + log 1/gamma) /
    (n − 1), delta = gamma = .05. P(C(S)) = probability that the process separates the class from the rest
    on S without error, by expectation propagation; its kernel is the covariance of the outputs of 24 random
    networks of the architecture (more if it has fewer than 10 outputs). S = all m training examples up to n =
    |S| = 1200, or as many as have 3 million numbers together, 200 at least. (Valle-Pérez & Louis 2020)

    Limits: it sees the architecture and the data, not the trained weights: networks that differ only in how
    they were trained have the same reading, to the bit. Random networks are drawn as torch initialises
    layers, with batch norm on the statistics of S, or of the first 3 million numbers of S where there are
    more (images above 70 × 70). The fewer random networks make the kernel, the less likely the labels look:
    what that adds on average is taken off. That and the error given come from leaving out a quarter of the
    networks at a time, for three of the classes.
    """
    part = subject.log_evidence()
    n = int(part["n"])
    each, left_out = _error_bound(part["evidence"], n), _error_bound(part["jackknife"], n)
    groups = left_out.mean(1)
    bias = jackknife_bias(float(each[: left_out.shape[1]].mean()), groups)
    spread = math.sqrt(float((groups - groups.mean()).square().sum()) * (len(groups) - 1) / len(groups))
    return Estimate(float(each.mean()) - bias, standard_error=spread, samples=int(part["networks"]))


MEASURES = [ml_pacbayes]
