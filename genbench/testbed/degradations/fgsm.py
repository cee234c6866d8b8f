"""The fast gradient sign method (Goodfellow, Shlens and Szegedy 2015) against a small network.

x + eps · sign(gradient of the loss at x), clipped to [0, 1], with eps in proportion to the contrast around a
pixel. The network is trained on the training images, and the loss takes its own prediction as the label, so
that no held-out label is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genbench.keys import derive_seed
from genbench.plugin.offers import DegradationTask, Dial
from genbench.testbed.degradations.contrast import deviations, local_variances
from genbench.testbed.degradations.networks import in_fixed_batches, one_thread, remembering, seeded, train

__all__ = ["Surrogate", "fit"]

_GRID = 16
"""Patches along a side: the cost of the network hardly depends on the size of the images."""
_WIDTH = 32
_STEPS = 600


class Surrogate(nn.Module):
    """A convolutional classifier that looks at patches, with smooth activations: no gradient is just 0."""

    def __init__(self, image_channels: int, patch: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(image_channels, _WIDTH, patch + 2, stride=patch, padding=1),
            nn.SiLU(),
            nn.Conv2d(_WIDTH, 2 * _WIDTH, 3, stride=2, padding=1),
            nn.GroupNorm(8, 2 * _WIDTH),
            nn.SiLU(),
            nn.Conv2d(2 * _WIDTH, 4 * _WIDTH, 3, stride=2, padding=1),
            nn.GroupNorm(8, 4 * _WIDTH),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * _WIDTH, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        logits: Tensor = self.layers(images * 2 - 1)
        return logits


def fit(task: DegradationTask) -> Sequence[Dial]:
    """One dial, with the surrogate's weights in it."""
    channels, height, width = task.images.shape[1:]
    # The loss below compares a class with the others, so there must be another.
    classes = max(2, int(task.labels.max()) + 1)
    seed = derive_seed("fgsm", task.seed)
    patch = max(1, min(height, width) // _GRID)
    network = seeded(lambda: Surrogate(channels, patch, classes), seed).to(task.images.device)

    def loss(images: Tensor, rows: Tensor) -> Tensor:
        return cross_entropy(network(images), task.labels[rows])

    with one_thread():
        train(
            network,
            loss,
            task.images,
            crop=max(height, width),
            batch=64,
            steps=_STEPS,
            rate=2e-3,
            generator=torch.Generator("cpu").manual_seed(seed),
        )

    return [_dial(network)]


def _dial(network: nn.Module) -> Dial:
    signs = remembering(lambda images: in_fixed_batches(lambda part: _signs(network, part), images))
    variances = remembering(local_variances)

    def turn(images: Tensor, strength: float, rows: Tensor) -> Tensor:
        return (signs(images) * deviations(variances(images), strength)).add_(images).clamp_(0, 1)

    return Dial("fgsm", turn, network.state_dict())


def _signs(network: nn.Module, images: Tensor) -> Tensor:
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        logits = network(images)
        predicted = logits.argmax(dim=1, keepdim=True)
        others = logits.scatter(1, predicted, -torch.inf)
        # The cross entropy is log(1 + exp(this)): the same sign, without vanishing where the network is sure.
        loss = others.logsumexp(dim=1) - logits.gather(1, predicted).squeeze(1)
        (gradient,) = torch.autograd.grad(loss.sum(), images)
    return gradient.sign()
