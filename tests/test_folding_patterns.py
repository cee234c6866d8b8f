"""Networks of one architecture are traced once; folded by that pattern they are as if folded alone."""

from __future__ import annotations

import pytest
import torch
from test_measures_zoo import SqueezeExcite, Transformer, images, mini
from test_subject import Residual, trained_looking
from torch import nn

from genbench.errors import NotApplicable
from genbench.population.networks import ARCHITECTURES, make_network
from genbench.population.step_types import Shape
from genbench.subject import folding
from genbench.subject.folding import fold_batch_norm
from genbench.subject.module_copies import can_be_copied, tensors_of


def network(architecture: str) -> nn.Module:
    depth = 8 if architecture == "resnetv2" else 2
    shape = Shape(architecture, depth, 4, 0.25, channels=3, height=8, image_width=8, classes=3)
    return make_network(shape, 0).eval()


CASES = {
    **{name: (lambda name=name: network(name), 8) for name in ARCHITECTURES},
    **{
        name: (lambda name=name: mini(name), 32)
        for name in ("mini-clip:short2", "mini-clip-vit:w24", "mini-efficientnet:b0", "mini-regnet:x1")
    },
    "gates": (SqueezeExcite, 8),
    "attention": (Transformer, 8),
    "a layer alone": (lambda: nn.Conv2d(3, 2, 3), 8),
}


@pytest.fixture(autouse=True)
def _forget(monkeypatch) -> None:
    monkeypatch.setattr(folding, "_PATTERNS", {})


@pytest.mark.parametrize("name", CASES)
def test_by_the_pattern_it_is_folded_as_alone_to_the_bit(name, monkeypatch) -> None:
    make, side = CASES[name]
    torch.manual_seed(0)
    first, second = trained_looking(make()).eval(), trained_looking(make()).eval()
    alone = fold_batch_norm(second, images(3, side))
    fold_batch_norm(first, images(3, side), "one architecture")
    monkeypatch.setattr(folding, "_trace", None)  # nothing is traced any more
    found = fold_batch_norm(second, images(3, side), "one architecture")

    assert found.layer_names == alone.layer_names
    expected, given = tensors_of(alone.module), tensors_of(found.module)
    assert list(given) == list(expected)
    for key, tensor in given.items():
        assert torch.equal(tensor, expected[key]), key
        assert tensor.requires_grad == expected[key].requires_grad, key
        assert tensor.stride() == expected[key].stride(), key
    assert torch.equal(found.module(images(5, side)), alone.module(images(5, side)))
    assert torch.equal(found.copy().module(images(5, side)), alone.module(images(5, side)))
    ours = {tensor.data_ptr() for tensor in tensors_of(second).values()}
    assert not any(tensor.data_ptr() in ours for tensor in given.values()), "a copy"


def test_a_copy_with_its_own_tensors_leaves_the_other_as_it_was() -> None:
    torch.manual_seed(0)
    folded = fold_batch_norm(trained_looking(Residual()).eval())
    before = {name: tensor.clone() for name, tensor in tensors_of(folded.module).items()}
    twin = folded.with_own_tensors()
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(twin.module(x), folded.module(x))
    with torch.no_grad():
        for tensor in twin.module.parameters():
            tensor.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors_of(folded.module).items())


def test_outputs_are_compared_for_every_network() -> None:
    """What a batch norm takes off again was lost before it; a folded network never adds it."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 2)).eval()
    fold_batch_norm(model, images(), "a")
    with torch.no_grad():
        model[0].bias.fill_(1e6)
        model[1].running_mean.fill_(1e6)
        model[1].running_var.fill_(1e-12)
    for architecture in (None, "a"):
        with pytest.raises(NotApplicable, match="would change the outputs"):
            fold_batch_norm(model, images(), architecture)


class FromBuffer(nn.Module):
    """What tracing sees of it is the value of a buffer, which another network need not have."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(value))
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x) * (self.scale * 2)


def test_what_was_computed_while_tracing_is_not_taken_for_another_network() -> None:
    torch.manual_seed(0)
    first, second, x = FromBuffer(1.0).eval(), FromBuffer(5.0).eval(), torch.randn(3, 4)
    fold_batch_norm(first, x, "a")
    torch.testing.assert_close(fold_batch_norm(second, x, "a").module(x), second(x))


class Bound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.told = self.layer.extra_repr

    def forward(self, x):
        return self.layer(x)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("make", [Bound, Twice, lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2)])
def test_networks_that_know_more_than_plain_values_are_not_copied(make) -> None:
    torch.manual_seed(0)
    first, second, x = make().eval(), make().eval(), torch.randn(3, 4)
    assert not can_be_copied(first)
    fold_batch_norm(first, x, "a")
    torch.testing.assert_close(fold_batch_norm(second, x, "a").module(x), second(x))


def test_patterns_do_not_pile_up() -> None:
    for number in range(folding._MOST_PATTERNS + 5):
        fold_batch_norm(nn.Sequential(nn.Linear(2, 2)), None, number)
    assert len(folding._PATTERNS) == folding._MOST_PATTERNS
    assert folding._MOST_PATTERNS + 4 in folding._PATTERNS
