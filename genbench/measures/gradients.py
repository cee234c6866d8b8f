"""Size and noise of gradients of mini-batches of 32 training examples at the trained weights (002 A.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench.errors import NotApplicable
from genbench.measures._estimates import drawn_sum, mean_by, mean_over_examples, skewed
from genbench.plugin.contract import Estimate, measure

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["MEASURES"]

_GRADIENTS = frozenset({"gradients", "training_data"})


@measure(
    category="gradient", needs=_GRADIENTS, randomness="seeded", paper="002 (39)", cost="medium", version="4"
)
def gradient_norm(subject: Subject) -> Estimate:
    """Mean norm of mini-batch gradients.

    mean_b ||g_b||_2, g_b = gradient of the mean loss in theta of a batch. Of the paper's aggregates, the
    mean. 24 batches are looked at; how large the errors p − y are in them, and in batches at large, corrects
    for their choice (a regression estimator).
    """
    part = subject.batch_gradients()
    return mean_by(part["norms"], part["doubts"], float(part["mean_doubt"]))


@measure(
    category="gradient", needs=_GRADIENTS, randomness="seeded", paper="002 A.4", cost="medium", version="3"
)
def gradient_noise_final_var(subject: Subject) -> Estimate:
    """Variance of mini-batch gradients at the trained weights.

    (1/d) sum_i Var_i, Var_i = variance over all batches of 32 training examples of coordinate i of the
    gradient (002 Eq. 36), as in gradient_noise_scale.

    Limits: depends on the batch size, 32 here for every network.
    """
    part = subject.gradient_noise()
    return skewed(drawn_sum(float(part["variance"]), part["shares"][:, 0], part["chances"]))


@measure(
    category="gradient", needs=_GRADIENTS, randomness="seeded", paper="002 (37)", cost="medium", version="3"
)
def gradient_noise_scale(subject: Subject) -> Estimate:
    """Variance of mini-batch gradients over their squared mean.

    (1/d) sum_i Var_i / (g_i² + eps), g_i and Var_i = mean and variance of coordinate i over all batches of 32
    training examples, eps = 1e-3 of the mean of g_i². No batch is drawn: g is the gradient of the mean loss,
    and Var_i follows from the squared gradients of single examples: all if they are at most 256, else so many
    drawn by the size of |p − y|², p the predicted probabilities. The error given is that of the draw.

    Limits: 002 leaves eps open; a fixed one outweighs g² on a network that fits its data, and the reading
    then is the variance alone. A mean of ratios: coordinates whose mean gradient is near 0 dominate it. With
    the mean of a few batches in place of g, as the paper's words allow, it is smaller and grows with their
    number; so it is for training sets of more than 4096 examples, of which so many make g.
    """
    part = subject.gradient_noise()
    if not len(part["noise_scale"]):
        raise NotApplicable("the gradient of the mean loss is 0, so its noise has nothing to be held against")
    return skewed(drawn_sum(float(part["noise_scale"]), part["shares"][:, 1], part["chances"]))


@measure(category="gradient", needs={"trace"}, paper="002 A.4", cost="low")
def gradient_noise_var(subject: Subject) -> float:
    """Variance of stochastic gradients during training.

    Mean over epochs of the trace's "gradient_variance": (1/d) sum_i Var_i over that epoch's mini-batches.

    Limits: only training can record it; without that entry in the trace the reading is not applicable.
    """
    trace = subject.trace()
    if "gradient_variance" not in trace:
        raise NotApplicable(
            'no gradient variance was recorded in training: the trace has no "gradient_variance"'
        )
    return float(trace["gradient_variance"].double().mean())


@measure(
    category="gradient", needs=_GRADIENTS, randomness="seeded", paper="002 A.4", cost="medium", version="2"
)
def input_gradient_norm(subject: Subject) -> Estimate:
    """Mean norm of the loss's gradient at the input.

    mean_n ||dl_n/dx_n||_2 over at most 512 training examples.

    Limits: in units of the network's inputs, so networks with other preprocessing are not comparable.
    """
    return mean_over_examples(subject.input_gradient_norms(), subject.m)


MEASURES = [
    gradient_norm,
    gradient_noise_final_var,
    gradient_noise_scale,
    gradient_noise_var,
    input_gradient_norm,
]
