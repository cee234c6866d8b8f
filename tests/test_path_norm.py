"""Path norms with norm layers as the identity, against a network that has none; and PReLU."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import genbench
from genbench.plugin.registry import load_registry


def read(name: str, model: nn.Module, inputs: Tensor) -> float:
    subject = genbench.Subject.from_module(model, data=(inputs, torch.arange(len(inputs)) % 3))
    return load_registry().measures[name].item(subject)


class PreActivation(nn.Module):
    """A residual network whose batch norms stand before its layers, and one behind the last addition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn1, self.conv1 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.bn2, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.last, self.head = nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.conv1(torch.relu(self.bn1(x)))
        x = x + self.conv2(torch.relu(self.bn2(y)))
        return self.head(torch.relu(self.last(x)).mean((2, 3)))


class Tokens(nn.Module):
    """Layer norms of tokens, as modules and as a function call."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(5, 6), nn.LayerNorm(6)
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + nn.functional.gelu(self.mix(self.norm(x)))
        return self.head(nn.functional.layer_norm(x, (6,)).mean(1))


MODELS = {
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3),
        ),
        (2, 6, 6),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        ),
        (2, 6, 6),
    ),
    "pre-activation": (PreActivation, (2, 6, 6)),
    "layer norm": (Tokens, (4, 5)),
}  # fmt: skip


def trained_looking(make) -> nn.Module:
    torch.manual_seed(0)
    model = make().eval()
    for part in model.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 3)
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)):
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.normal_(part.bias)
    return model


def without_norms(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for name, part in list(model.named_modules()):
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)):
            model.set_submodule(name, nn.Identity())
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_norm_layers_are_the_identity_in_the_unnormalised_path_norm(kind, monkeypatch) -> None:
    """The reference squares the parameters of the network without norms and runs it on ones."""
    make, shape = MODELS[kind]
    model, inputs = trained_looking(make), torch.randn(12, *shape)
    found = read("path_norm_unnormalised", model, inputs)
    plain = without_norms(model).double()
    monkeypatch.setattr(nn.functional, "layer_norm", lambda x, shape: x)
    monkeypatch.setattr(nn.functional, "gelu", torch.relu)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.square_()
        total = float(plain(torch.ones(1, *shape, dtype=torch.float64)).sum())
    assert found == pytest.approx(math.sqrt(total / 12), rel=1e-9)


def test_two_layers_in_closed_form_and_what_rescaling_before_a_norm_does() -> None:
    model = trained_looking(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))
    )
    inputs = torch.randn(20, 4)

    def closed_form() -> float:
        w1, b1, w2, b2 = (
            p.detach().double().numpy() ** 2
            for p in (model[0].weight, model[0].bias, model[3].weight, model[3].bias)
        )
        return math.sqrt((w2 @ (w1 @ np.ones(4) + b1) + b2).sum() / 20)

    before = {name: read(name, model, inputs) for name in ("path_norm", "path_norm_unnormalised")}
    assert before["path_norm_unnormalised"] == pytest.approx(closed_form(), rel=1e-9)
    with torch.no_grad():  # as a schedule of 000's Exp++ does: the layer norm takes it back
        model[0].weight.mul_(1000)
        model[0].bias.mul_(1000)
    assert read("path_norm_unnormalised", model, inputs) == pytest.approx(closed_form(), rel=1e-9)
    assert read("path_norm_unnormalised", model, inputs) > 100 * before["path_norm_unnormalised"]
    assert read("path_norm", model, inputs) == pytest.approx(before["path_norm"], rel=1e-3)


def test_without_norm_layers_both_are_the_same() -> None:
    model = trained_looking(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    inputs = torch.randn(20, 4)
    assert read("path_norm_unnormalised", model, inputs) == read("path_norm", model, inputs)


@pytest.mark.parametrize("name", ["path_norm", "path_norm_unnormalised"])
def test_prelu_acts_as_leaky_relu_does(name) -> None:
    class Functional(nn.Module):
        def __init__(self, body: nn.Sequential) -> None:
            super().__init__()
            self.first, self.slope, self.last = body[0], nn.Parameter(torch.full((6,), 0.3)), body[2]

        def forward(self, x: Tensor) -> Tensor:
            return self.last(nn.functional.prelu(self.first(x), self.slope))

    leaky = trained_looking(lambda: nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 3)))
    learnt = nn.Sequential(leaky[0], nn.PReLU(6), leaky[2])
    inputs = torch.randn(20, 4)
    expected = read(name, leaky, inputs)
    assert read(name, learnt, inputs) == expected
    assert read(name, Functional(learnt), inputs) == expected
