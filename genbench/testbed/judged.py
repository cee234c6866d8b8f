"""From features to evidence: heads of all zero-shot levels, then every cell of one backbone (SPEC.md 1).

Features were computed once per SSIM level; a zero-shot level is a head on them. No forward pass here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genbench.engine.precise import precise_device
from genbench.testbed.cube import class_error
from genbench.testbed.heads import Head, fit_heads, prototypes
from genbench.testbed.kappa import cohen_kappa, table_kappa

__all__ = ["judge"]

_TOLERANCE = 1e-6
"""Of the heads' objective, relative: far below what moves an error rate, and a tenth less work than 1e-7."""


def judge(
    *,
    training: Tensor,
    training_labels: Tensor,
    heldout: Sequence[Tensor],
    heldout_labels: Tensor,
    seen: int,
    zero_shot: Sequence[int],
    penalty: float,
    threshold: float,
    unseen_head: str = "probe",
    prototype_images: int = 5,
    text: Tensor | None = None,
) -> dict[str, Tensor]:
    """Per-class error, gap and kappas of every cell of one backbone, and which images it got right.

    Parameters
    ----------
    training, training_labels : (n, d) features of the training images of all classes, seen ones first.
    heldout : (m, d) features of the held-out images, one tensor per SSIM level.
    heldout_labels : (m,) their classes.
    zero_shot : numbers z of unseen classes.
    threshold : probability from which a class counts as recognised (`conflict` kappa).
    text : (classes, d) embeddings of the class names, for `unseen_head` "text".

    Returns
    -------
    `error`, `gap`, `kappa_conflict`, `kappa_cohen` (zero_shot, ssim, class) float64, NaN for classes that are
    not part of a cell; `training_error` (zero_shot, class); `right` (zero_shot, ssim, image) uint8, 0 for
    images that are not part of a cell. All of it on the CPU; heads are fitted on the step's device.
    """
    classes = int(training_labels.max()) + 1
    device, truth = precise_device(), heldout_labels.cpu().numpy()
    training, training_labels = training.to(device), training_labels.to(device)
    embeddings = None if text is None or unseen_head != "text" else text.to(device)
    if unseen_head == "prototype":
        embeddings = prototypes(training, training_labels, classes, prototype_images)
    heads = fit_heads(
        training,
        training_labels,
        zero_shot,
        seen=seen,
        penalty=penalty,
        embeddings=embeddings,
        tolerance=_TOLERANCE,
    )
    cells = (len(zero_shot), len(heldout), classes)
    arrays = {name: np.full(cells, np.nan) for name in ("error", "gap", "kappa_conflict", "kappa_cohen")}
    training_error = np.full((len(zero_shot), classes), np.nan)
    right = np.zeros((*cells[:2], len(heldout_labels)), dtype=np.uint8)
    for i, (z, head) in enumerate(zip(zero_shot, heads, strict=True)):
        count = seen + z
        known = training_labels < count
        predicted = head.logits(training[known]).argmax(dim=1).cpu().numpy()
        training_error[i, :count] = class_error(training_labels[known].cpu().numpy(), predicted, count)
        rows = np.flatnonzero(truth < count)
        for j, features in enumerate(heldout):
            prediction, kappa = _decided(head, features[torch.from_numpy(rows)].to(device), threshold)
            error = class_error(truth[rows], prediction, count)
            arrays["error"][i, j, :count] = error
            arrays["gap"][i, j, :count] = error - training_error[i, :count]
            arrays["kappa_conflict"][i, j, :count] = kappa
            arrays["kappa_cohen"][i, j, :count] = cohen_kappa(truth[rows], prediction, count)
            right[i, j, rows] = prediction == truth[rows]
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return {**tensors, "training_error": torch.from_numpy(training_error), "right": torch.from_numpy(right)}


def _decided(head: Head, features: Tensor, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Predicted classes (images,) and the `conflict` kappa of every class (`scoring.kappa.conflict_kappa`).

    At most 1/threshold classes of an image can reach the threshold: they are counted one by one, which saves
    passes over the (images, classes) table.
    """
    logits = head.logits(features)
    prediction = logits.argmax(dim=1).cpu().numpy()
    own = torch.softmax(logits, dim=1) >= threshold
    recognised = own.sum(dim=1)
    images = len(own)
    alone = own[recognised == 1].sum(dim=0).cpu().numpy()  # b: class i and no other
    both = own[recognised > 1].sum(dim=0).cpu().numpy()  # a: class i and another
    other = int((recognised > 0).sum()) - alone - both  # c: another, not class i
    return prediction, table_kappa(both, alone, other, images - alone - both - other)
