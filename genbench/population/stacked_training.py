"""Trains many networks of one architecture at once, each to its own stopping rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genbench.population.optimizers import StackedOptimizer
from genbench.population.stacked import StackedNetworks
from genbench.population.step_types import BlockRecipe, NetworkRecipe
from genbench.subject.inputs import Inputs
from genbench.subject.precision import wide

__all__ = [
    "SCHEDULES",
    "STOPS",
    "BlockRecipe",
    "EpochEnd",
    "NetworkRecipe",
    "StackedTraining",
    "train_stacked",
    "training_fit",
]

STOPS = ("cross_entropy", "accuracy", "epochs")
SCHEDULES = ("constant", "cosine")


@dataclass
class StackedTraining:
    """What became of one network; the lists have one number per epoch."""

    converged: bool = False
    """Whether it met its stopping rule."""
    loss: list[float] = field(default_factory=list)
    """Training cross-entropy in eval mode after each epoch."""
    accuracy: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    """Mean over batches of the norm of the batch gradient."""
    gradient_variance: list[float] = field(default_factory=list)
    """Mean over coordinates of the variance, over the epoch's batches, of the batch gradient (002 Eq. 36)."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """State dict at the end."""

    def trace(self) -> dict[str, Tensor]:
        """By name, float64."""
        names = ("loss", "accuracy", "gradient_norm", "gradient_variance")
        return {name: _column(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class EpochEnd:
    """Networks that are still trained, at the end of an epoch."""

    epoch: int
    """Counted from 1."""
    networks: Sequence[int]
    """Which they are; the lists below, and the stack, are in their order."""
    stack: StackedNetworks
    loss: Sequence[float]
    accuracy: Sequence[float]


def train_stacked(
    networks: Sequence[nn.Module],
    images: Tensor | Inputs,
    labels: Tensor,
    block: BlockRecipe,
    recipes: Sequence[NetworkRecipe],
    watch: Callable[[EpochEnd], None] = lambda end: None,
) -> list[StackedTraining]:
    """Train copies of `networks` on the same examples, each in an order of its own.

    A network that meets its stopping rule, or whose loss is no number any more, leaves the stack. All are
    trained on the device of `images` and `labels`; whatever is drawn is drawn on the CPU.

    Parameters
    ----------
    watch : called after every epoch, for those who keep networks on their way.
    """
    stack = StackedNetworks(networks, images.device)
    optimizer = StackedOptimizer(
        block.optimizer,
        stack.theta,
        _column([r.learning_rate for r in recipes]),
        _column([r.momentum for r in recipes]),
        _column([r.weight_decay for r in recipes]),
    )
    generators = [torch.Generator("cpu").manual_seed(r.order_seed) for r in recipes]
    histories = [StackedTraining() for _ in recipes]
    active = list(range(len(recipes)))
    for epoch in range(block.max_epochs):
        factor = (
            1.0 if block.schedule == "constant" else (1 + math.cos(math.pi * epoch / block.max_epochs)) / 2
        )
        statistics = _epoch(stack, optimizer, images, labels, block.batch_size, generators, factor)
        losses, accuracies = training_fit(stack, images, labels)
        watch(EpochEnd(epoch + 1, tuple(active), stack, losses, accuracies))
        staying = []
        for place, network in enumerate(active):
            history = histories[network]
            history.loss.append(losses[place])
            history.accuracy.append(accuracies[place])
            history.gradient_norm.append(statistics.norm[place])
            history.gradient_variance.append(statistics.variance[place])
            history.converged = _met(block, history, epoch)
            if history.converged or epoch + 1 == block.max_epochs or not math.isfinite(losses[place]):
                history.state = stack.state(place)
            else:
                staying.append(place)
        if len(staying) < len(active):
            chosen = torch.tensor(staying, dtype=torch.int64, device=images.device)
            stack.keep(chosen)
            optimizer.keep(chosen)
            generators = [generators[place] for place in staying]
            active = [active[place] for place in staying]
        if not active:
            break
    return histories


def _column(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _met(block: BlockRecipe, history: StackedTraining, epoch: int) -> bool:
    if not math.isfinite(history.loss[-1]):
        return False
    if block.stop == "cross_entropy":
        return history.loss[-1] <= block.stop_cross_entropy
    if block.stop == "accuracy":
        return history.accuracy[-1] == 1.0
    return epoch + 1 == block.max_epochs


@dataclass(frozen=True)
class _Statistics:
    norm: list[float]
    variance: list[float]


def _epoch(
    stack: StackedNetworks,
    optimizer: StackedOptimizer,
    images: Tensor | Inputs,
    labels: Tensor,
    batch_size: int,
    generators: Sequence[torch.Generator],
    factor: float,
) -> _Statistics:
    """One pass of all networks over the examples."""
    drawn = [torch.randperm(len(labels), generator=g, device="cpu") for g in generators]
    orders = torch.stack(drawn).to(images.device)
    theta = stack.theta.requires_grad_()
    precision = wide(theta.device)
    sums, norms = torch.zeros_like(theta), theta.new_zeros(len(theta), dtype=precision)
    squares = torch.zeros_like(norms)
    batches = orders.split(batch_size, dim=1)
    for rows in batches:
        # (n, batch, c, h, w) -> (n, c, h, w, batch)
        inputs = images[rows].permute(0, 2, 3, 4, 1).contiguous()
        logits = stack.logits(theta, inputs, training=True, generators=generators)
        # A sum over networks: the gradient of each network's own mean loss is in its own row.
        loss = F.cross_entropy(logits, labels[rows], reduction="sum") / rows.shape[1]
        (gradient,) = torch.autograd.grad(loss, theta)
        optimizer.step(theta, gradient, factor)
        norm = torch.linalg.vector_norm(gradient, dim=1).to(precision)
        norms += norm
        squares += norm.square()
        sums += gradient
    theta.requires_grad_(False)
    # Sum over coordinates of E[g²] − E[g]².
    mean_square = torch.linalg.vector_norm(sums / len(batches), dim=1).to(precision).square()
    variance = (squares / len(batches) - mean_square).clamp(min=0) / stack.parameters_each
    return _Statistics((norms / len(batches)).tolist(), variance.tolist())


def training_fit(
    stack: StackedNetworks, images: Tensor | Inputs, labels: Tensor
) -> tuple[list[float], list[float]]:
    """Training cross-entropy and accuracy of every network, in eval mode."""
    logits = stack.evaluate(images)
    losses = F.cross_entropy(logits.transpose(1, 2), labels.expand(len(stack), -1), reduction="none")
    right = (logits.argmax(dim=2) == labels).to(wide(logits.device))
    return losses.mean(dim=1).tolist(), right.mean(dim=1).tolist()
