"""Classifiers over stored features: one multinomial logistic regression per zero-shot level (SPEC.md, Heads).

Definition. Features are standardised by the mean and deviation of the *seen* classes' training images, the
same for every level. The head of level z minimises, over the training images of the first S + z classes,

    F(W, b) = sum_i CE(W x_i + b, y_i) + penalty/2 · ||W||²        (the bias is not penalised),

which is scikit-learn's objective with C = 1/penalty, times penalty.

Unseen rows without training images (`text`, `prototype`). The seen rows are the head of level 0; an unseen
class u with embedding e_u has the logit

    temperature · cos(x, e_u) + offset        (x the raw features, as in CLIP).

One temperature and one offset serve all unseen classes. They decide how readily an image is given to an
unseen class, and no image of one may help to choose them. So classes that *are* seen play the unseen ones
(calibrated stacking: Chao et al. 2016): five times, a fifth of the seen classes is left out of the
regression and put back by its embeddings, and the pair of numbers is the one that minimises the summed cross
entropy of all seen-class training images over the five. It is the maximum-likelihood scale of an embedding's
logit beside rows that never met its class, and the problem is convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

__all__ = ["CosineRows", "Head", "Standardiser", "fit_heads", "prototypes"]

_FOLDS = 5
_STEPS = 200
_ITERATIONS = 100
_LEAD = 97
"""Leading coordinates with exact blocks: the constant and 96 principal axes."""
_REFRESH = 30
"""Conjugate-gradient iterations after which making the blocks anew pays."""
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Standardiser:
    """x -> (x − mean) / scale, feature by feature."""

    mean: Tensor
    scale: Tensor
    """Standard deviations, none below a thousandth of their root mean square: a unit that is all but dead on
    clean images would otherwise be blown up on degraded ones."""

    @classmethod
    def fit(cls, features: Tensor) -> Standardiser:
        """Mean and population deviation of (n, d) features, in float64."""
        features = features.double()
        deviation, mean = torch.std_mean(features, dim=0, correction=0)
        floor = 1e-3 * deviation.square().mean().sqrt()
        return cls(mean, deviation.clamp(min=floor if floor > 0 else 1.0))

    def __call__(self, features: Tensor) -> Tensor:
        """Standardised features (n, d) float64."""
        return (features.double() - self.mean) / self.scale


@dataclass(frozen=True)
class CosineRows:
    """Classes known by an embedding alone; see the module's docstring for the scale."""

    embeddings: Tensor
    """(classes, d), unit length."""
    temperature: float
    offset: float

    def logits(self, features: Tensor) -> Tensor:
        """(n, classes) from raw features (n, d)."""
        cosines = normalize(features, dim=1) @ self.embeddings.to(features.dtype).T
        return self.temperature * cosines + self.offset


@dataclass(frozen=True)
class Head:
    """A classifier over the first S + z classes."""

    standardiser: Standardiser
    weights: Tensor
    """(classes, d) float64, over standardised features; rows sum to zero."""
    bias: Tensor
    """(classes,) float64; sums to zero."""
    unseen: CosineRows | None = None
    """Classes after those of `weights`, where they are known by embeddings."""

    def logits(self, features: Tensor) -> Tensor:
        """(n, S + z) logits of raw features (n, d), in the features' own precision."""
        weights = self.weights / self.standardiser.scale
        bias = self.bias - weights @ self.standardiser.mean
        linear = torch.addmm(bias.to(features.dtype), features, weights.to(features.dtype).T)
        if self.unseen is None:
            return linear
        return torch.cat([linear, self.unseen.logits(features)], dim=1)


def fit_heads(
    features: Tensor,
    labels: Tensor,
    levels: Sequence[int],
    *,
    seen: int,
    penalty: float = 10.0,
    embeddings: Tensor | None = None,
    tolerance: float = 1e-7,
) -> list[Head]:
    """One head per level, in the order of `levels`.

    Parameters
    ----------
    features : (n, d) features of training images.
    labels : (n,) classes; 0 .. seen − 1 are the seen ones, those after them the unseen ones in their order.
    levels : numbers z of unseen classes.
    seen : S, the number of seen classes.
    penalty : weight of ||W||²/2 beside the sum of cross entropies: 1/C of scikit-learn.
    embeddings : None for `probe` heads, which are trained on images of the unseen classes too. Otherwise
        (S + U, d) rows in the space of the raw features, seen classes first (they set the scale): those of
        the text tower for `text`, those of `prototypes` for `prototype`. Images of unseen classes are then
        not looked at.
    tolerance : bound on (F − min F)/F at which a regression counts as solved.
    """
    if len(features) != len(labels) or features.dim() != 2:
        raise ValueError(
            f"features must be (n, d) with n labels, not {tuple(features.shape)} and {tuple(labels.shape)}"
        )
    if not levels or min(levels) < 0 or seen < 2:
        raise ValueError(
            f"need levels z ≥ 0 and at least two seen classes, not levels {list(levels)} with {seen} seen"
        )
    if penalty <= 0:
        raise ValueError(f"the penalty must be positive, not {penalty}: without it the optimum may not exist")
    top = seen + max(levels) if embeddings is None else seen
    kept = labels < top
    features, labels = features[kept], labels[kept]
    _require_images(labels, top)
    standardiser = Standardiser.fit(features[labels < seen])
    x = standardiser(features)
    if embeddings is None:
        counts = [seen + z for z in levels]
        return [Head(standardiser, w, b) for w, b in _fit_nested(x, labels, counts, penalty, tolerance)]
    if len(embeddings) < seen + max(levels) or embeddings.shape[1:] != features.shape[1:]:
        raise ValueError(
            f"level {max(levels)} needs embeddings ({seen + max(levels)}, {features.shape[1]}) "
            f"of its seen and unseen classes, not {tuple(embeddings.shape)}"
        )
    rows = normalize(embeddings.double(), dim=1)
    ((weights, bias),) = _fit_nested(x, labels, [seen], penalty, tolerance)
    temperature, offset = _calibrate(
        x, normalize(features.double(), dim=1) @ rows[:seen].T, labels, penalty, tolerance
    )
    return [
        Head(standardiser, weights, bias, CosineRows(rows[seen : seen + z], temperature, offset))
        for z in levels
    ]


def prototypes(features: Tensor, labels: Tensor, classes: int, count: int) -> Tensor:
    """(classes, d) unit-length means of the first `count` features of each class."""
    _require_images(labels, classes, count)
    means = [features[labels == k][:count].double().mean(dim=0) for k in range(classes)]
    return normalize(torch.stack(means), dim=1)


def _require_images(labels: Tensor, classes: int, count: int = 1) -> None:
    found = torch.bincount(labels, minlength=classes)[:classes]
    if (found < count).any():
        short = int((found < count).nonzero()[0])
        raise ValueError(f"class {short} has {int(found[short])} training images; it needs at least {count}")


def _calibrate(
    x: Tensor, cosines: Tensor, labels: Tensor, penalty: float, tolerance: float
) -> tuple[float, float]:
    """Temperature and offset of embedding logits, from seen classes that play unseen ones.

    x (n, d) standardised features and cosines (n, S) of the seen classes' training images.
    """
    classes = cosines.shape[1]
    if classes < 3:
        raise ValueError(f"embeddings need at least three seen classes to set their scale, not {classes}")
    # Cosines may lie close together: the two numbers are sought on a unit scale.
    deviation, mean = (value.item() for value in torch.std_mean(cosines))
    folds = []
    for fold in range(min(_FOLDS, classes)):
        plays = torch.arange(classes, device=x.device) % _FOLDS == fold
        known = ~plays[labels]
        ((weights, bias),) = _fit_nested(
            x[known], ((~plays).cumsum(0) - 1)[labels[known]], [int((~plays).sum())], penalty, tolerance
        )
        # Which regression row is right does not depend on the two numbers, so all of them are one class, 0.
        rest = (x @ weights.T + bias).logsumexp(dim=1, keepdim=True)
        target = torch.where(known, 0, plays.cumsum(0)[labels])
        folds.append((rest, (cosines[:, plays] - mean) / deviation, target))
    pair = x.new_zeros(2).requires_grad_()
    optimiser = torch.optim.LBFGS([pair], max_iter=200, tolerance_grad=1e-8, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        losses = [
            cross_entropy(torch.cat([rest, pair[0] * played + pair[1]], dim=1), target)
            for rest, played, target in folds
        ]
        total = torch.stack(losses).mean()
        total.backward()
        return total

    optimiser.step(loss)
    slope, offset = pair.tolist()
    return slope / deviation, offset - slope * mean / deviation


def _fit_nested(
    x: Tensor, labels: Tensor, counts: Sequence[int], penalty: float, tolerance: float
) -> list[tuple[Tensor, Tensor]]:
    """Minimisers (W, b) of F over the images of the first `count` classes, for each count, to `tolerance`.

    The largest problem is solved first, from zero; each smaller one starts from the rows it shares with the
    one before, which lie close to its optimum (rows of a class never met would not).
    """
    order = torch.argsort(labels, stable=True)
    x, labels = x[order], labels[order]
    # In principal axes, with the constant first: a rotation changes neither logits nor penalty, and it
    # gathers what is ill-conditioned into the leading coordinates, which the preconditioner treats in full.
    axes = torch.linalg.eigh(x.T @ x)[1].flip(1)
    x = torch.cat([x.new_ones(len(x), 1), x @ axes], dim=1)
    top = max(counts)
    weights = x.new_zeros(top, x.shape[1])
    preconditioner = _Preconditioner(x.float(), top, penalty)
    found = {}
    for count in sorted(set(counts), reverse=True):
        images = int(torch.searchsorted(labels, count))
        weights = weights[:count] - weights[:count].mean(dim=0)
        weights = _newton(weights, x[:images], labels[:images], penalty, preconditioner, tolerance)
        found[count] = weights[:, 1:] @ axes.T, weights[:, 0].clone()
    return [found[count] for count in counts]


def _newton(
    weights: Tensor,
    x: Tensor,
    labels: Tensor,
    penalty: float,
    preconditioner: _Preconditioner,
    tolerance: float,
) -> Tensor:
    """Newton's method; its steps by conjugate gradients in float32, values and gradients in float64.

    It stops on a bound of F − min F: ||gradient||²/(2·penalty) for W, in which F is penalty-strongly convex;
    the unpenalised bias enters with the data's own curvature, sum_i p_ik (1 − p_ik), in the penalty's place.
    """
    truth = torch.zeros_like(weights).index_add_(0, labels, x)  # the gradient of the labels' logits
    precision = torch.float32
    value, p = _objective(weights, x, labels, penalty)
    full_step = True
    for _ in range(_STEPS):
        gradient = p.T @ x - truth
        gradient[:, 1:] += penalty * weights[:, 1:]
        curvature = (p.sum(dim=0) - p.square().sum(dim=0)).clamp(min=1e-12)
        excess = gradient[:, 1:].square().sum() / penalty + (gradient[:, 0].square() / curvature).sum()
        if excess.item() / 2 <= tolerance * value:
            # A common shift of all rows changes no probability, and without it the penalty is least.
            return weights - weights.mean(dim=0)
        p = p.to(precision)
        preconditioner.refresh_if_stale(p)
        # After a step that had to be cut the quadratic model is not worth solving well.
        patience = 0.2 if full_step else 0.5
        step = _newton_step(gradient, p, x.to(precision), penalty, preconditioner, patience)
        slope = (gradient * step).sum().item()
        length = 1.0
        while length > 1e-8:
            tried, p = _objective(weights + length * step, x, labels, penalty)
            if tried <= value + 1e-4 * length * slope:
                break
            length /= 2
        else:
            if precision == torch.float64:
                break
            precision = torch.float64
            value, p = _objective(weights, x, labels, penalty)
            continue
        full_step = length == 1.0
        weights, value = weights + length * step, tried
    raise ArithmeticError(
        f"the logistic regression over {len(weights)} classes did not reach its optimum "
        f"(objective {value:.6g}, gradient {gradient.norm():.3g}); a penalty larger than {penalty} helps"
    )


def _objective(weights: Tensor, x: Tensor, labels: Tensor, penalty: float) -> tuple[float, Tensor]:
    """F and the class probabilities (n, classes)."""
    logits = x @ weights.T
    logits -= logits.amax(dim=1, keepdim=True)
    right = logits.gather(1, labels[:, None])
    p = logits.exp_()
    total = p.sum(dim=1, keepdim=True)
    value = (total.log() - right).sum() + 0.5 * penalty * weights[:, 1:].square().sum()
    return value.item(), p.div_(total)


def _newton_step(
    gradient: Tensor, p: Tensor, x: Tensor, penalty: float, preconditioner: _Preconditioner, patience: float
) -> Tensor:
    """Preconditioned conjugate gradients on H·step = −gradient.

    H·D = (p ∘ (v − <p, v>))ᵀ x + penalty·D with v = x Dᵀ, each image's own <p, v>, no penalty on the bias.
    It ends when an iteration adds less than the share `patience` of the mean one to the model's decrease
    (Nash and Sofer 1990).
    """
    step = torch.zeros_like(gradient, dtype=p.dtype)
    residual = -gradient.to(p.dtype)
    solved = preconditioner(residual)
    direction = solved
    product = (residual * solved).sum().item()
    decrease = 0.0
    for iteration in range(1, _ITERATIONS + 1):
        v = x @ direction.T
        v -= torch.linalg.vecdot(p, v)[:, None]
        curved = (v.mul_(p)).T @ x
        curved[:, 1:] += penalty * direction[:, 1:]
        curvature = (direction * curved).sum().item()
        if curvature <= 0:  # rounding: the direction is flat to this precision
            break
        rate = product / curvature
        step.add_(direction, alpha=rate)
        gain = rate * product
        decrease += gain
        if iteration * gain <= patience * decrease:
            break
        residual.sub_(curved, alpha=rate)
        solved = preconditioner(residual)
        product, before = (residual * solved).sum().item(), product
        direction = solved + product / before * direction
    preconditioner.uses += iteration
    return step.double()


class _Preconditioner:
    """Inverses of the Hessian's diagonal blocks, one per class: sum_i p_ik (1 − p_ik) x_i x_iᵀ + penalty.

    Blocks cover the leading principal coordinates; the others, where the data hardly vary, have a diagonal.
    """

    def __init__(self, x: Tensor, classes: int, penalty: float) -> None:
        self._x, self._squares, self._penalty = x, x.square(), penalty
        self._lead = min(_LEAD, x.shape[1])
        self.uses = 0
        # At zero weights all classes share one block.
        lead = x[:, : self._lead]
        self._blocks = self._inverse((lead.T @ lead / classes)[None]).expand(classes, -1, -1)
        self._diagonal = (self._squares[:, self._lead :].sum(dim=0) / classes + penalty).expand(classes, -1)

    def __call__(self, residual: Tensor) -> Tensor:
        classes, low = len(residual), residual.float()
        lead = torch.bmm(self._blocks[:classes], low[:, : self._lead, None])[:, :, 0]
        rest = low[:, self._lead :] / self._diagonal[:classes]
        return torch.cat([lead, rest], dim=1).to(residual.dtype)

    def refresh_if_stale(self, p: Tensor) -> None:
        """Make the blocks anew from the probabilities p, once the iterations since have paid for it."""
        if self.uses < _REFRESH:
            return
        self.uses = 0
        images, classes = p.shape
        w = (p * (1 - p)).float()
        # Most images tell a class nothing: those enter by their diagonal alone.
        kept = w > _NEGLIGIBLE
        blocks = torch.diag_embed((w * ~kept).T @ self._squares[:images, : self._lead])
        for k in range(classes):
            rows = kept[:, k].nonzero()[:, 0]
            x = self._x[rows, : self._lead]
            blocks[k].addmm_(x.T * w[rows, k], x)
        self._blocks = self._inverse(blocks)
        self._diagonal = w.T @ self._squares[:images, self._lead :] + self._penalty

    def _inverse(self, blocks: Tensor) -> Tensor:
        # The second term keeps float32 Cholesky factors alive when the penalty is tiny beside the data.
        largest = blocks.diagonal(dim1=1, dim2=2).amax(dim=1, keepdim=True)
        blocks.diagonal(dim1=1, dim2=2).add_(self._penalty + 1e-5 * largest)
        return torch.cholesky_inverse(torch.linalg.cholesky(blocks))
