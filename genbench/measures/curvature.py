"""Second derivatives of the training loss at the trained weights (002 A.3).

The loss is that of one batch of at most 128 training examples, as in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench.measures._estimates import mean_of
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]

_GRADIENTS = frozenset({"gradients", "training_data"})
_PRECISION = 1e-3
"""lambda of 002 Eq. 31, the prior precision, as a share of the mean of F; the paper leaves it open."""


@measure(category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (34)", cost="high")
def hessian_top_eigenvalue(subject: Subject) -> Estimate:
    """Largest eigenvalue of the loss's Hessian.

    max of vᵀHv over unit vectors v, H = Hessian of the mean cross-entropy in theta, by Lanczos until its
    residual is below one per cent of it, or 20 steps. The error given is the residual: an eigenvalue
    lies within it.

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not (Dinh et al.
    2017).
    """
    part = subject.curvature()
    return Estimate(float(part["top"]), standard_error=float(part["residual"]))


@measure(category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (35)", cost="high")
def hessian_trace(subject: Subject) -> Estimate:
    """Trace of the loss's Hessian.

    tr(H), exact on the space that hessian_top_eigenvalue's iteration spans, and by random signs v, vᵀHv
    (Hutchinson), on the rest; 4 and more of them, until it is known to 5 % or there are 12 (200 for a small
    network).

    Limits: as hessian_top_eigenvalue.
    """
    return mean_of(subject.curvature()["traces"])


@measure(
    category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (32)", cost="medium", version="2"
)
def flatness_proxy(subject: Subject) -> Estimate:
    """Mean diagonal of the empirical Fisher information of batches, plus a prior precision.

    mean_i (F_i + lambda), F_i = mean_b (dL_b/dw_i)², lambda = 1e-3 of the mean of F_i; 16 mini-batches of 32
    training examples.

    Limits: 002 leaves lambda open; a fixed one would make all networks that fit their data alike. F is taken
    from batch gradients, as in the paper, so it shrinks as the batch grows. Of the paper's aggregates this is
    the mean.
    """
    return mean_of(subject.batch_gradients()["squares"], 1 + _PRECISION)


MEASURES = [hessian_top_eigenvalue, hessian_trace, flatness_proxy]
