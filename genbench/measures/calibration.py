"""Outputs and confidence on the training set (002 A.1, A.6).

Confidence is the largest softmax probability; bins are 15, equally wide, closed on the right as in Guo et al.
2017. Empty bins do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import torch
from genbench.errors import NotApplicable
from genbench.plugin.contract import measure

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.subject import Subject

__all__ = ["MEASURES"]

_DATA = frozenset({"weights", "training_data"})
_BINS = 15


def _logits(subject: Subject) -> Tensor:
    return subject.logits().cpu().double()


def _labels(subject: Subject) -> Tensor:
    return subject.labels().cpu()


def _gaps(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Share of examples and |accuracy − confidence| of every bin that is not empty."""
    confidence, predicted = logits.softmax(1).max(1)
    right = (predicted == labels).to(logits.dtype)
    bins = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
    counts = torch.bincount(bins, minlength=_BINS).to(logits.dtype)
    excess = logits.new_zeros(_BINS).index_add_(0, bins, right - confidence)
    used = counts > 0
    return counts[used] / len(labels), (excess[used] / counts[used]).abs()


def _expected_error(logits: Tensor, labels: Tensor) -> float:
    shares, gaps = _gaps(logits, labels)
    return float((shares * gaps).sum())


@measure(category="output", needs=_DATA, paper="002 A.1", cost="low")
def cross_entropy(subject: Subject) -> float:
    """Mean cross-entropy on the training set.

    mean_n −log p(y_n | x_n).
    """
    return float(torch.nn.functional.cross_entropy(_logits(subject), _labels(subject)))


@measure(category="output", needs=_DATA, paper="002 A.1", cost="low")
def negative_entropy(subject: Subject) -> float:
    """Mean negative entropy of the predictions on the training set.

    mean_n sum_k p_k log p_k, p = softmax of the logits of example n: 0 for certainty, −log K for none.
    """
    log_p = _logits(subject).log_softmax(1)
    return float((log_p.exp() * log_p).sum(1).mean())


@measure(category="calibration", needs=_DATA, paper="002 (47)", cost="low")
def ece(subject: Subject) -> float:
    """Expected calibration error.

    sum_b |B_b|/m · |accuracy(B_b) − confidence(B_b)| over 15 bins. (Naeini et al. 2015)

    Limits: on the training set, where a network that fits it is right whatever its confidence.
    """
    return _expected_error(_logits(subject), _labels(subject))


@measure(category="calibration", needs=_DATA, paper="002 (49)", cost="low")
def mce(subject: Subject) -> float:
    """Largest calibration error of any bin.

    max_b |accuracy(B_b) − confidence(B_b)| over 15 bins.

    Limits: decided by the emptiest bins, often by a single example.
    """
    return float(_gaps(_logits(subject), _labels(subject))[1].max())


@measure(category="calibration", needs=_DATA, paper="002 (48)", cost="low")
def reliability_diagram(subject: Subject) -> float:
    """Sum of the calibration errors of all bins.

    sum_b |accuracy(B_b) − confidence(B_b)| over 15 bins, unweighted.

    Limits: as mce; it grows with the number of bins in use.
    """
    return float(_gaps(_logits(subject), _labels(subject))[1].sum())


@measure(category="calibration", needs=_DATA, paper="002 (50)", cost="low")
def ace(subject: Subject) -> float:
    """Adaptive calibration error.

    1/(K·M) sum_k sum_b |accuracy(B_bk) − confidence(B_bk)|: for each class k, its probability on all
    examples, sorted and cut into M = 15 bins of equal size. (Nixon et al. 2019)
    """
    p = _logits(subject).softmax(1)
    order = p.argsort(dim=0, stable=True)
    confidence = p.gather(0, order)
    truth = torch.nn.functional.one_hot(_labels(subject), p.shape[1]).to(p.dtype).gather(0, order)
    gaps = [
        (truth_bin.mean(0) - confidence_bin.mean(0)).abs()
        for truth_bin, confidence_bin in zip(
            truth.tensor_split(min(_BINS, len(p))), confidence.tensor_split(min(_BINS, len(p))), strict=True
        )
    ]
    return float(torch.stack(gaps).mean())


@measure(category="calibration", needs=_DATA, paper="002 A.6", cost="low", version="2")
def temperature_scaling(subject: Subject) -> float:
    """Expected calibration error after the best temperature.

    ece of logits / T, with the T that minimises the training cross-entropy, 1/T between 1e-3 and 1e3: the
    cross-entropy is convex in 1/T, so there is one. (Guo et al. 2017)

    Limits: T is fitted on the training set. Where every example is classified right, the cross-entropy falls
    all the way to T = 0, at which every confidence is 1: the reading then is exactly 0, so networks that fit
    their data are ties. Where the best T lies beyond its bounds for another reason there is no reading.
    """
    logits, labels = _logits(subject), _labels(subject)
    above = logits - logits.gather(1, labels[:, None])
    others = above.scatter(1, labels[:, None], -torch.inf)
    if float(others.max()) < 0:
        return 0.0
    return _expected_error(_best_inverse_temperature(above) * logits, labels)


def _best_inverse_temperature(above: Tensor) -> float:
    """Bisection on the sign of the derivative of the cross-entropy in 1/T, which only grows.

    `above`: every logit less that of the label, (m, classes).
    """

    def slope(exponent: float) -> float:
        return float(((10**exponent * above).softmax(1) * above).sum(1).mean())

    low, high = -3.0, 3.0
    if slope(low) >= 0 or slope(high) <= 0:
        raise NotApplicable("no temperature between 0.001 and 1000 is the best one for the network's outputs")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float(10 ** ((low + high) / 2))


MEASURES = [cross_entropy, negative_entropy, ece, mce, reliability_diagram, ace, temperature_scaling]
