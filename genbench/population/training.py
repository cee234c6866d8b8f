"""Trains one small network to its stopping rule."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["Recipe", "Training", "accuracy", "train"]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    stop_cross_entropy: float
    """Training ends after the first epoch whose training cross-entropy, in eval mode, is at most this."""
    max_epochs: int


@dataclass
class Training:
    """What happened while it trained."""

    converged: bool = False
    loss: list[float] = field(default_factory=list)
    """Training cross-entropy in eval mode after each epoch."""
    accuracy: list[float] = field(default_factory=list)


def train(model: nn.Module, images: Tensor, labels: Tensor, recipe: Recipe, seed: int) -> Training:
    """Train `model` in place; the order of the examples depends on `seed` alone."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = _optimizer(model, recipe)
    history = Training()
    for _ in range(recipe.max_epochs):
        model.train()
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(recipe.batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        model.eval()
        logits = _logits(model, images)
        history.loss.append(float(nn.functional.cross_entropy(logits, labels)))
        history.accuracy.append(float((logits.argmax(1) == labels).double().mean()))
        if history.loss[-1] <= recipe.stop_cross_entropy:
            history.converged = True
            break
    model.eval()
    return history


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        model.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay
    )


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(batch) for batch in images.split(1024)])


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Which images are classified right, (n,) bool."""
    return _logits(model, images).argmax(1) == labels
