"""Sign-error of a measure over pairs of networks (004 Eq. 6 and 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SignError", "bootstrap_sign_error", "sign_error"]


@dataclass(frozen=True)
class SignError:
    """A sign-error with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int
    """Number of unordered pairs of networks behind it."""
    dropped: int
    """Networks left out because the measure gave no finite reading."""


def sign_error(readings: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    """Mean over unordered pairs of ½ (1 − sgn(d − d')·sgn(C − C')): 0 perfect, ½ a coin, 1 always wrong.

    A tie on either side counts ½.

    Parameters
    ----------
    readings : (models,) values C of a measure for which higher means worse.
    truth : (..., models) values d of what it should predict; leading axes give one sign-error each.
    """
    c = np.asarray(readings, dtype=np.float64)
    d = np.asarray(truth, dtype=np.float64)
    first, second = np.triu_indices(len(c), k=1)
    agreement = np.sign(d[..., first] - d[..., second]) * np.sign(c[first] - c[second])
    return np.asarray(0.5 * (1 - agreement.mean(axis=-1)))


def bootstrap_sign_error(
    readings: ArrayLike,
    train_accuracy: ArrayLike,
    right: ArrayLike,
    labels: ArrayLike,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> SignError | None:
    """Sign-error against the gap, with an interval by bootstrap over held-out images within each class.

    The resamples depend on `labels`, `resamples` and `seed` alone, so they are the same for all measures.
    None if fewer than two networks have a finite reading.

    Parameters
    ----------
    readings : (models,) values of the measure, higher means worse; not finite where there is none.
    train_accuracy : (models,) accuracies on the training set.
    right : (models, images) whether each held-out image was classified right.
    labels : (images,) classes of the held-out images.
    """
    c = np.asarray(readings, dtype=np.float64)
    kept = np.isfinite(c)
    if kept.sum() < 2:
        return None
    correct = np.asarray(right, dtype=np.float64)[kept]
    accuracy = np.asarray(train_accuracy, dtype=np.float64)[kept]
    # How often each image is drawn: one row per resample, drawn within each class.
    counts = _resampled_counts(np.asarray(labels), resamples, seed)
    gaps = accuracy - counts @ correct.T / correct.shape[1]
    low, high = np.quantile(sign_error(c[kept], gaps), [0.025, 0.975])
    models = int(kept.sum())
    return SignError(
        value=float(sign_error(c[kept], accuracy - correct.mean(axis=1))),
        low=float(low),
        high=float(high),
        pairs=models * (models - 1) // 2,
        dropped=int((~kept).sum()),
    )


def _resampled_counts(labels: NDArray[np.int64], resamples: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    counts = np.zeros((resamples, len(labels)))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        counts[:, rows] = generator.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=resamples)
    return counts
