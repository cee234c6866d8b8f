"""Second derivatives of the training loss at the trained weights (002 A.3).

The loss is that of all training examples if they are at most 256, else of 128, in micro-batches that fit; of
so many that their forward pass takes 2e11 floating-point operations (64 for a byte it keeps), and 16 at
least, if that is fewer.
Errors include the choice of examples, from the spread of single examples' Gauss-Newton curvature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench.measures._estimates import drawn_sum, mean_of, mean_over_examples, skewed, together
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]

_GRADIENTS = frozenset({"gradients", "training_data"})
_PRECISION = 1e-3
"""lambda of 002 Eq. 31, the prior precision, as a share of the mean of F; the paper leaves it open."""


@measure(
    category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (34)", cost="high", version="3"
)
def hessian_top_eigenvalue(subject: Subject) -> Estimate:
    """Largest eigenvalue of the loss's Hessian.

    max of vᵀHv over unit vectors v, H = Hessian of the mean cross-entropy in theta, by Lanczos until its
    residual is below two per cent of it, or 20 steps (12 where a forward pass of the examples takes more than
    2e10 floating-point operations, and as many as a gigabyte holds). The error given is the residual, within
    which an eigenvalue lies, and that of the examples along v.

    Limits: changes when consecutive ReLU layers are rescaled, though the function does not (Dinh et al.
    2017).
    """
    part = subject.curvature()
    examples = mean_over_examples(part["top_forms"], subject.m)
    error = together(float(part["residual"]), examples.standard_error or 0.0)
    return Estimate(float(part["top"]), standard_error=error)


@measure(
    category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (35)", cost="high", version="5"
)
def hessian_trace(subject: Subject) -> Estimate:
    """Trace of the loss's Hessian.

    tr(H), exact on the space that hessian_top_eigenvalue's iteration spans, and by random signs v, vᵀHv
    (Hutchinson), on the rest; 4 and more of them, until they are known to 7 % or three times better than the
    examples, or there are 12 (200 for a small network). Where hessian_top_eigenvalue makes 12 steps each v
    sees a quarter of the examples.

    Limits: as hessian_top_eigenvalue.
    """
    part = subject.curvature()
    trace = mean_of(part["traces"])
    examples = mean_over_examples(part["trace_forms"], subject.m)
    error = together(trace.standard_error or 0.0, examples.standard_error or 0.0)
    return Estimate(trace, standard_error=error, samples=trace.samples)


@measure(
    category="curvature", needs=_GRADIENTS, randomness="seeded", paper="002 (32)", cost="medium", version="3"
)
def flatness_proxy(subject: Subject) -> Estimate:
    """Mean diagonal of the empirical Fisher information of batches, plus a prior precision.

    mean_i (F_i + lambda), F_i = mean_b (dL_b/dw_i)², lambda = 1e-3 of the mean of F_i; over all batches
    of 32 training examples, as in gradient_noise_scale.

    Limits: 002 leaves lambda open; a fixed one would make all networks that fit their data alike. F is taken
    from batch gradients, as in the paper, so it shrinks as the batch grows. Of the paper's aggregates this is
    the mean.
    """
    part = subject.gradient_noise()
    mean = (1 + _PRECISION) * float(part["variance"] + part["mean_square"])
    return skewed(drawn_sum(mean, (1 + _PRECISION) * part["shares"][:, 0], part["chances"]))


MEASURES = [hessian_top_eigenvalue, hessian_trace, flatness_proxy]
