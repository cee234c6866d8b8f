"""How far the confidence of networks is from their accuracy on held-out images (002 Eq. 47)."""

from __future__ import annotations

from torch import Tensor

from genbench.subject.precision import wide

__all__ = ["calibration_errors"]

_BINS = 15


def calibration_errors(logits: Tensor, labels: Tensor) -> Tensor:
    """(n,) expected calibration errors of logits (n, images, classes).

        ECE = sum_b |B_b|/N · |accuracy(B_b) − confidence(B_b)|

    over 15 bins of confidence, equally wide and closed on the right: the measure `ece`, on images that no
    network was trained on. NaN where a network's outputs are not finite.
    """
    precision = wide(logits.device)
    confidence, predicted = logits.to(precision).softmax(dim=2).max(dim=2)
    excess = (predicted == labels).to(precision) - confidence
    bins = (confidence * _BINS).ceil().nan_to_num(nan=1.0).long().clamp(1, _BINS) - 1
    totals = excess.new_zeros(len(logits), _BINS).scatter_add_(1, bins, excess)
    # |B_b|/N · |mean of the bin| is |sum of the bin|/N.
    return totals.abs().sum(dim=1) / len(labels)
