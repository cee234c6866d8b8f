"""Adaptation: a pretrained backbone with a linear head, fine-tuned on the seen classes (SPEC.md, Adaptation).

The adapted weights are rounded to fp16 before anything is measured on them: what is stored, shipped and
rebuilt is then one and the same network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.subject.inputs import Inputs
from genbench.testbed.loss_target import LossTarget
from genbench.testbed.step_types import AdaptationRecipe
from genbench.testbed.training_set import Shifts

__all__ = ["AdaptedNetwork", "Trace", "adapt", "read_state", "rounded_state"]


class AdaptedNetwork(nn.Module):
    """Preprocessed images -> logits of the seen classes."""

    def __init__(self, backbone: nn.Module, feature_width: int, classes: int, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = nn.Linear(feature_width, classes, device="cpu")  # drawn alike for every device

    def forward(self, images: Tensor) -> Tensor:
        """(n, classes) logits."""
        logits: Tensor = self.head(self.backbone(images))
        return logits


@dataclass(frozen=True)
class Trace:
    """What adaptation recorded, one number per epoch."""

    loss: list[float]
    """Mean cross entropy of the epoch's batches, in training mode."""
    accuracy: list[float]
    gradient_norm: list[float]
    """Mean over batches of the norm of the batch gradient."""
    gradient_variance: list[float]
    """Mean over coordinates of the variance, over the epoch's batches, of the batch gradient (002 Eq. 36)."""

    def tensors(self) -> dict[str, Tensor]:
        """By name, float64."""
        return {
            name: torch.tensor(values, dtype=torch.float64, device="cpu")
            for name, values in vars(self).items()
        }


def adapt(network: AdaptedNetwork, images: Inputs, labels: Tensor, recipe: AdaptationRecipe) -> Trace:
    """Fine-tune `network` in place, where it is; the order of batches is a function of the seed.

    AdamW with a one-epoch warm-up and a cosine decay, early stopping on the training loss. Of the images only
    the batch in use and the next one are held preprocessed. Where training ends at a loss in evaluation
    mode, the network is one from within the last epoch of the trace.
    """
    frozen = recipe.method == "frozen"
    for parameter in network.backbone.parameters():
        parameter.requires_grad_(not frozen)
    rates = [recipe.head_learning_rate]
    groups: list[dict[str, Any]] = [{"params": list(network.head.parameters())}]
    if not frozen:
        rates.append(recipe.learning_rate)
        groups.append({"params": list(network.backbone.parameters())})
    optimizer = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay)
    batches_per_epoch = -(-len(labels) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=rates,
        total_steps=recipe.epochs * batches_per_epoch,
        # A warm-up of one step would have no length, which torch divides by.
        pct_start=min(0.3, max(2, batches_per_epoch) / batches_per_epoch / recipe.epochs),
        cycle_momentum=False,
    )
    generator = torch.Generator("cpu").manual_seed(recipe.seed)
    trace = Trace([], [], [], [])
    best, since_best = float("inf"), 0
    target = None
    if recipe.stop == "evaluation":
        target = LossTarget(network, images, labels, recipe.stop_loss, batches=batches_per_epoch)
    shifts = Shifts(derive_seed("shift", recipe.seed)) if recipe.augmentation == "shift" else None
    for _ in range(recipe.epochs):
        # A frozen backbone keeps its batch norms' statistics too.
        network.train(not frozen)
        epoch = _Epoch(network)
        order = torch.randperm(len(labels), generator=generator, device="cpu")
        batches = order.tensor_split(batches_per_epoch)
        for rows, batch in zip(batches, images.stream(batches), strict=True):
            truth = labels[rows].to(images.device)
            logits = network(batch if shifts is None else shifts(batch))
            loss = F.cross_entropy(logits, truth)
            optimizer.zero_grad()
            loss.backward()
            epoch.add(loss, logits, truth)
            with torch.device("cpu"):  # where AdamW counts its steps
                optimizer.step()
            schedule.step()
            if target is not None:
                target.stepped()
        epoch.write(trace)
        reached = target is not None and target.reached()
        found = trace.loss[-1] if target is None else target.loss
        since_best = 0 if found < best else since_best + 1
        best = min(best, found)
        if reached or since_best >= recipe.patience or (target is None and best <= recipe.stop_loss):
            break
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    network.eval()
    return trace


class _Epoch:
    """Running sums over the batches of one epoch."""

    def __init__(self, network: nn.Module) -> None:
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._batches = self._images = self._right = 0
        self._loss = self._norm = 0.0
        self._sums = [torch.zeros_like(p) for p in self._parameters]
        self._squares = 0.0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Take in one batch, after its backward pass."""
        self._batches += 1
        self._images += len(labels)
        self._loss += loss.item() * len(labels)
        self._right += int((logits.detach().argmax(dim=1) == labels).sum())
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        square = sum(float(g.square().sum()) for g in gradients)
        self._norm += square**0.5
        self._squares += square
        torch._foreach_add_(self._sums, gradients)

    def write(self, trace: Trace) -> None:
        """Append this epoch's numbers."""
        trace.loss.append(self._loss / self._images)
        trace.accuracy.append(self._right / self._images)
        trace.gradient_norm.append(self._norm / self._batches)
        # Sum over coordinates of E[g²] − E[g]².
        mean_square = sum(float(s.square().sum()) for s in self._sums) / self._batches**2
        coordinates = sum(p.numel() for p in self._parameters)
        trace.gradient_variance.append(max(0.0, self._squares / self._batches - mean_square) / coordinates)


def rounded_state(network: nn.Module) -> dict[str, Tensor]:
    """The state in fp16, integers as they are, on the CPU; a `UserError` where fp16 cannot hold a value."""
    state = {}
    for name, value in network.state_dict().items():
        small = (value.half() if value.is_floating_point() else value).cpu()
        if value.is_floating_point() and not bool(small.isfinite().all()):
            raise UserError(
                f"adaptation diverged: {name} has a value that fp16 cannot hold; lower adapt.learning_rate"
            )
        state[name] = small.clone().contiguous()
    return state


def read_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """fp16 back to fp32, copied out of the mapped file."""
    return {
        name: value.float() if value.dtype == torch.float16 else value.clone()
        for name, value in state.items()
    }
