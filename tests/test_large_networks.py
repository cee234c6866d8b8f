"""Curvature, information and gradient noise of networks that do not fit: in pieces they are the same."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from coverage_study import Residual, digits
from torch import nn

import genbench
from genbench.measures._estimates import mean_of
from genbench.subject import fitting, gradient_noise, hessian, information
from genbench.subject.gradients import trainable
from genbench.subject.inputs import Inputs
from genbench.subject.parts import LocalParts, Part
from genbench.subject.subject import TrainedNetwork


def network(m: int = 60) -> TrainedNetwork:
    """A small residual network, not trained: every example matters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inputs, labels = digits(m)
        return TrainedNetwork("residual", Residual(2).eval(), None, Inputs(inputs), labels, 10)


def part(name: str, of: TrainedNetwork) -> Part:
    return LocalParts(of, 0).get(name)


@pytest.mark.parametrize("name", ["curvature", "information", "gradient_noise"])
def test_a_part_is_the_same_in_micro_batches(name, monkeypatch) -> None:
    monkeypatch.setattr(hessian, "_PROBED", 0)
    monkeypatch.setattr(hessian, "_MOST_STEPS", 6)
    whole, of = part(name, network()), network()
    most = 20
    monkeypatch.setattr(fitting, "_budget", most * of.bytes_per_example)
    source, passed = LocalParts(of, 0), []
    source.get("logits")  # another's
    of.model.stem.register_forward_pre_hook(lambda module, args: passed.append(len(args[0])))
    pieces = source.get(name)
    assert max(passed) <= most
    assert len(passed) >= 3  # gradients of single examples are mapped over a batch: the network sees one
    for key, expected in whole.items():
        torch.testing.assert_close(pieces[key], expected, rtol=1e-5, atol=1e-8)


def test_gradients_taken_one_by_one_give_the_same_information() -> None:
    whole = part("information", network())
    with patch.object(information, "_CHUNK_FLOATS", 0), patch.object(information, "_ROOT_FLOATS", 1):
        looped = part("information", network())
    for key, expected in whole.items():
        torch.testing.assert_close(looped[key], expected, rtol=1e-5, atol=1e-12)


def test_gradients_taken_one_by_one_give_the_same_groups_of_some_coordinates() -> None:
    """Every k-th coordinate of all weights, wherever a tensor begins."""
    with patch.object(information, "_GROUP_FLOATS", 500):
        whole = part("information", network())
        with patch.object(information, "_CHUNK_FLOATS", 0):
            looped = part("information", network())
    torch.testing.assert_close(looped["left_out"], whole["left_out"], rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(looped["left_out_rest"], whole["left_out_rest"], rtol=1e-5, atol=1e-12)


def test_gradient_noise_with_the_gradient_of_one_example_at_a_time() -> None:
    whole = part("gradient_noise", network())
    with patch.object(gradient_noise, "_CHUNK_FLOATS", 0):
        single = part("gradient_noise", network())
    for key, expected in whole.items():
        torch.testing.assert_close(single[key], expected, rtol=1e-5, atol=1e-12)


def exact_hessian(of: TrainedNetwork) -> torch.Tensor:
    """By torch's own function, of all examples."""
    theta = trainable(of.model)
    names = [name for name, p in of.model.named_parameters() if p.requires_grad]
    sizes = [p.numel() for p in theta]

    def loss(vector: torch.Tensor) -> torch.Tensor:
        pieces = zip(names, vector.split(sizes), theta, strict=True)
        state = {name: piece.view_as(p) for name, piece, p in pieces}
        logits = torch.func.functional_call(of.model, state, (of.inputs[:],))
        return nn.functional.cross_entropy(logits, of.labels)

    vector = torch.cat([p.detach().flatten() for p in theta])
    found: torch.Tensor = torch.autograd.functional.hessian(loss, vector)
    return found.double()


def test_dear_products_give_the_trace_and_the_top_within_their_errors() -> None:
    """Probes that see a quarter of the examples each; compared with the whole Hessian."""
    of = network()
    hessian_of_all = exact_hessian(of)
    with patch.object(hessian, "_LARGE", 0), patch.object(hessian, "_LEAST_PROBES", 40):
        found = part("curvature", of)
    trace = mean_of(found["traces"])
    assert trace.samples == 40
    assert float(trace) == pytest.approx(float(hessian_of_all.trace()), abs=3 * trace.standard_error)
    assert trace.standard_error <= 0.1 * float(trace)
    top = float(torch.linalg.eigvalsh(hessian_of_all)[-1])
    assert float(found["top"]) == pytest.approx(top, abs=float(found["residual"]) + 1e-4 * top)


def test_examples_are_fewer_where_passes_are_long() -> None:
    of = network()
    inputs = of.inputs[:1]
    # Twice the multiplications of the stem, of four convolutions and of the head.
    flops = 2 * (64 * 9 * 2 + 4 * 64 * 9 * 2 * 2 + 2 * 10)
    assert inputs.shape == (1, 1, 8, 8)
    with patch.object(hessian, "_PASS", 30 * (flops + 64 * of.bytes_per_example)):
        assert len(part("curvature", of)["top_forms"]) == 30
    with patch.object(hessian, "_PASS", 1):
        assert len(part("curvature", of)["top_forms"]) == 16


def test_a_basis_that_does_not_fit_is_cut_short_and_the_residual_says_so() -> None:
    of = network()
    size = sum(p.numel() for p in trainable(of.model))
    with patch.object(hessian, "_BASIS_BYTES", 3 * 8 * size):
        short = part("curvature", of)
    full = part("curvature", of)
    assert short["residual"] > full["residual"]
    assert short["top"] < full["top"]  # the largest within a smaller space


def test_more_classes_than_matrices_that_fit() -> None:
    """Of 40 classes with two matrices at a time; I of a linear network in closed form."""
    torch.manual_seed(0)
    model, inputs, labels = nn.Linear(5, 40), torch.randn(60, 5), torch.arange(60) % 40
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    with patch.multiple(information, _ROOT_FLOATS=2 * 40**2, _EXACT=39):
        traces = subject.information()["traces"]
    p = model(inputs).softmax(1).detach()
    expected = (p * (1 - p)).sum(1) * (inputs.square().sum(1) + 1)
    torch.testing.assert_close(traces.sort().values, expected.double().sort().values, rtol=1e-4, atol=1e-6)
