"""Parts that pass over the examples in smaller batches, where memory is short, are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_devices import subject
from torch import nn

from genbench.measures.compression import compression_bound
from genbench.subject import fitting, nngp, responses, spectral
from genbench.subject.inputs import Inputs
from genbench.subject.parts import LocalParts, Part

PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "logits": ("logits", {}),
    "margins": ("margins", {}),
    "paths": ("log_paths", {}),
    "within classes": ("response_curve", {"pairs": "intra", "layer": 0}),
    "across classes, behind the first block": ("response_curve", {"pairs": "inter", "layer": 1}),
    "midpoints": ("midpoints", {}),
    "noise": ("weight_noise", {"kind": "tensor"}),
    "turned": ("transformed_curve", {"transformation": "rotation", "sweep": "folded"}),
    "recoloured": ("transformed_curve", {"transformation": "colour", "sweep": "signed"}),
}


@pytest.fixture
def little_memory(monkeypatch) -> None:
    """Room for 7 examples of a network that keeps 10 kB of each, and for 60 of one that keeps a tenth."""
    monkeypatch.setattr(fitting, "_budget", 70_000)


def part(kind: str, name: str, options: dict[str, Any]) -> Part:
    return LocalParts(subject(kind)._network, seed=0).get(name, **options)


@pytest.mark.parametrize("kind", ["convolutions", "attention"])
@pytest.mark.parametrize("what", PARTS)
def test_parts_do_not_depend_on_the_memory(what, kind, request) -> None:
    name, options = PARTS[what]
    if what == "across classes, behind the first block" and kind == "attention":
        options = options | {"layer": 0}
    expected = part(kind, name, options)
    request.getfixturevalue("little_memory")
    assert fitting.fitting(subject(kind)._network, 24) <= 12
    found = part(kind, name, options)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        torch.testing.assert_close(found[key], values, rtol=1e-5, atol=0)


def test_inner_products_are_made_in_blocks(request) -> None:
    network = subject("convolutions")._network
    expected, labels = responses.first_products(network, 20)
    request.getfixturevalue("little_memory")
    found, again = responses.first_products(network, 20)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(again, labels)
    # The origin is the first example's output; distances are those of the outputs themselves.
    inputs, _ = responses.examples(network, 20)
    outputs = responses.cut_network(network).first(inputs[:]).detach().flatten(1).double()
    squares = found.diagonal()
    distances = (squares[:, None] + squares - 2 * found).clamp(min=0).sqrt()
    torch.testing.assert_close(distances, torch.cdist(outputs, outputs), rtol=1e-6, atol=1e-6)


def test_batches_of_a_subject_fit(little_memory) -> None:
    found = subject("convolutions").fresh()
    sizes = [len(labels) for _, labels in found.batches()]
    assert sum(sizes) == found.m
    assert max(sizes) <= 12
    assert [len(labels) for _, labels in found.batches(20)] == [20, 4]
    assert compression_bound(found) == compression_bound(subject("convolutions").fresh(batch_size=24))


# -- random networks ---------------------------------------------------------------------------------


def features(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return torch.cat(nngp.nngp_features(model, Inputs(inputs), seed=5), 1)


def test_random_networks_see_large_inputs_in_batches(monkeypatch) -> None:
    model = subject("perceptron").model
    inputs = torch.randn(11, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = features(model, inputs)
    monkeypatch.setattr(nngp, "_NUMBERS", 4 * 192)
    torch.testing.assert_close(features(model, inputs), expected, rtol=1e-5, atol=1e-7)


def test_batch_norm_of_random_networks_has_the_statistics_of_the_first_batch(monkeypatch) -> None:
    monkeypatch.setattr(nngp, "_NUMBERS", 4 * 192)
    model = subject("convolutions").model
    first, second, third = torch.randn(3, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()
    one, other = (
        features(model, torch.cat(batches)) for batches in ((first, second), (first, third, second))
    )
    torch.testing.assert_close(one[:4], other[:4], rtol=0, atol=0)
    torch.testing.assert_close(one[4:], other[8:], rtol=0, atol=0)
    # Four examples at once are normalised by their own statistics: running ones, in torch, divide by n − 1.
    alone = features(model, first)
    assert 0.9 < float(one[:4].norm() / alone.norm()) < 1
    moved = features(model, torch.cat([second, first]))
    assert float((moved[:4] - one[4:]).norm() / one.norm()) > 0.01


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(3, 10, 3), nn.Conv2d(12, 24, 3, groups=6), nn.Conv1d(4, 5, 4)], ids=str
)
def test_spectra_are_made_in_pieces(layer, monkeypatch) -> None:
    expected = spectral.spectral_norm(layer, layer.weight, 9)
    monkeypatch.setattr(spectral, "_HELD", 2 * (12 // layer.groups) * (24 // layer.groups) * 9 * 5)
    assert spectral.spectral_norm(layer, layer.weight, 9) == expected
    monkeypatch.setattr(spectral, "_HELD", 1)  # one group alone is too large: few frequencies are looked at
    assert spectral.spectral_norm(layer, layer.weight, 9) == pytest.approx(expected, rel=1e-9)
