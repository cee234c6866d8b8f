"""Small networks for the checks: ordinary ones, degenerate ones, and pairs that compute the same function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from genbench.subject import Subject

__all__ = ["DEGENERATE", "SAME_FUNCTION", "convolutional", "fully_connected"]

_CLASSES, _SIDE = 4, 8


def _blobs(m: int) -> tuple[Tensor, Tensor]:
    """Noisy images around one random pattern per class."""
    generator = torch.Generator("cpu").manual_seed(1)
    patterns = torch.randn(_CLASSES, 1, _SIDE, _SIDE, generator=generator, device="cpu")
    labels = torch.arange(m, device="cpu") % _CLASSES
    noise = torch.randn(m, 1, _SIDE, _SIDE, generator=generator, device="cpu")
    return patterns[labels] + noise, labels


class _ConvolutionalNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.relu, self.pool, self.flatten = nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        self.linear = nn.Linear(32, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        images = self.relu(self.bn1(self.conv1(images)))
        images = self.relu(self.bn2(self.conv2(images)))
        out: Tensor = self.linear(self.flatten(self.pool(images)))
        return out


def _fully_connected_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(_SIDE * _SIDE, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, _CLASSES),
    )


def _trained(make: Callable[[], nn.Module], seed: int) -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        initial = make()
    model = copy.deepcopy(initial).train()
    images, labels = _blobs(120)
    weights = list(model.parameters())
    moments = [torch.zeros_like(weight) for weight in weights]
    for _ in range(40):
        gradients = torch.autograd.grad(nn.functional.cross_entropy(model(images), labels), weights)
        # torch.optim.SGD gives the same bits, and imports torch's compiler: a second of every check.
        with torch.no_grad():
            for weight, moment, gradient in zip(weights, moments, gradients, strict=True):
                weight.sub_(moment.mul_(0.9).add_(gradient), alpha=0.05)
    return model.eval(), initial.eval()


@cache
def _convolutional_pair() -> tuple[nn.Module, nn.Module]:
    return _trained(_ConvolutionalNetwork, seed=3)


@cache
def _fully_connected_pair() -> tuple[nn.Module, nn.Module]:
    return _trained(_fully_connected_network, seed=4)


def _subject(
    model: nn.Module, initial: nn.Module, name: str, m: int = 120, seed: int = 0, batch_size: int = 256
) -> Subject:
    ends = {"loss": (1.4, 0.01), "accuracy": (0.25, 1.0)}
    trace = {name: torch.linspace(*pair, 40, device="cpu") for name, pair in ends.items()}
    return Subject.from_module(
        model, initial=initial, data=_blobs(m), name=name, trace=trace, seed=seed, batch_size=batch_size
    )


def convolutional(seed: int = 0, batch_size: int = 256) -> Subject:
    """A trained network with convolutions, batch norm and a linear head."""
    return _subject(*_convolutional_pair(), "convolutional", seed=seed, batch_size=batch_size)


def fully_connected(seed: int = 0) -> Subject:
    """A trained fully connected ReLU network without batch norm."""
    return _subject(*_fully_connected_pair(), "fully connected", seed=seed)


# -- degenerate networks -----------------------------------------------------------------------------


def _all_zero() -> Subject:
    model, initial = _fully_connected_pair()
    return _subject(_filled(model, 0.0), initial, "all weights zero")


def _never_trained() -> Subject:
    _, initial = _fully_connected_pair()
    return _subject(initial, initial, "never trained")


def _constant_output() -> Subject:
    model, initial = _fully_connected_pair()
    model = copy.deepcopy(model)
    last = [part for part in model.modules() if isinstance(part, nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    return _subject(model, initial, "same output for every input")


def _huge_weights() -> Subject:
    model, initial = _fully_connected_pair()
    return _subject(_scaled(model, 1e12), initial, "weights of size 1e12")


def _one_example_per_class() -> Subject:
    return _subject(*_fully_connected_pair(), "one example per class", m=_CLASSES)


def _filled(model: nn.Module, value: float) -> nn.Module:
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


def _scaled(model: nn.Module, factor: float) -> nn.Module:
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


DEGENERATE: dict[str, Callable[[], Subject]] = {
    "all weights zero": _all_zero,
    "never trained": _never_trained,
    "same output for every input": _constant_output,
    "weights of size 1e12": _huge_weights,
    "one example per class": _one_example_per_class,
}


# -- networks that compute the same function ---------------------------------------------------------


def _hidden(model: nn.Module) -> tuple[nn.Linear, nn.Linear]:
    """The first two layers of the fully connected network, with a ReLU between them."""
    assert isinstance(model, nn.Sequential)
    first, second = model[1], model[3]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return first, second


def _permuted() -> tuple[Subject, Subject]:
    order = torch.randperm(16, generator=torch.Generator("cpu").manual_seed(5), device="cpu")

    def permute(model: nn.Module) -> nn.Module:
        model = copy.deepcopy(model)
        first, second = _hidden(model)
        with torch.no_grad():
            first.weight.copy_(first.weight[order].clone())
            first.bias.copy_(first.bias[order].clone())
            second.weight.copy_(second.weight[:, order].clone())
        return model

    model, initial = _fully_connected_pair()
    return fully_connected(), _subject(permute(model), permute(initial), "hidden units permuted")


def _rescaled() -> tuple[Subject, Subject]:
    model, initial = _fully_connected_pair()
    model = copy.deepcopy(model)
    first, second = _hidden(model)
    with torch.no_grad():
        first.weight.mul_(8)
        first.bias.mul_(8)
        second.weight.div_(8)
    return fully_connected(), _subject(model, initial, "consecutive layers rescaled by 8 and 1/8")


def _batch_norm_scaled() -> tuple[Subject, Subject]:
    model, initial = _convolutional_pair()
    model = copy.deepcopy(model)
    assert isinstance(model, _ConvolutionalNetwork)
    norm = model.bn1
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        model.conv1.weight.mul_(8)
        assert model.conv1.bias is not None
        model.conv1.bias.mul_(8)
        norm.running_mean.mul_(8)
        # Exact in spite of eps: the normaliser sqrt(var + eps) itself grows by 8.
        norm.running_var.copy_(64 * (norm.running_var + norm.eps) - norm.eps)
    return convolutional(), _subject(model, initial, "weights before batch norm scaled by 8")


def _dead_units() -> tuple[Subject, Subject]:
    def widened(model: nn.Module) -> nn.Module:
        model = copy.deepcopy(model)
        first, second = _hidden(model)
        wide, next_ = nn.Linear(64, 20, device="cpu"), nn.Linear(20, 16, device="cpu")
        with torch.no_grad():
            for layer in (wide, next_):
                layer.weight.zero_()
                layer.bias.zero_()
            wide.weight[:16], wide.bias[:16] = first.weight, first.bias
            next_.weight[:, :16], next_.bias[:] = second.weight, second.bias
        assert isinstance(model, nn.Sequential)
        model[1], model[3] = wide, next_
        return model

    model, initial = _fully_connected_pair()
    return fully_connected(), _subject(widened(model), widened(initial), "four dead units added")


SAME_FUNCTION: dict[str, Callable[[], tuple[Subject, Subject]]] = {
    "hidden units permuted": _permuted,
    "consecutive layers rescaled by 8 and 1/8": _rescaled,
    "weights before batch norm scaled by 8": _batch_norm_scaled,
    "four dead units added": _dead_units,
}
