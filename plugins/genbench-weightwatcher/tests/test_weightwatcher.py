"""The measures are WeightWatcher's own numbers, and keep genbench's contract."""

import math

import pytest
import torch
from genbench_weightwatcher import ww_alpha, ww_alpha_weighted, ww_log_spectral_norm

import genbench


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 96),
        torch.nn.ReLU(),
        torch.nn.Linear(96, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


@pytest.fixture(scope="module")
def subject(model):
    return genbench.Subject.from_module(model, data=(torch.zeros(20, 64), torch.zeros(20)))


def test_log_spectral_norm_is_that_of_numpy_s_svd(model, subject):
    layers = [part.weight.detach() for part in model if isinstance(part, torch.nn.Linear)]
    largest = [torch.linalg.svdvals(w.double())[0].item() ** 2 for w in layers]
    expected = sum(map(math.log10, largest)) / len(largest)
    assert ww_log_spectral_norm(subject.fresh()) == pytest.approx(expected, rel=1e-4)


def test_alphas_are_those_of_weightwatcher(model, subject):
    import weightwatcher

    details = weightwatcher.WeightWatcher(model=model).analyze()
    assert len(details) == 3
    assert ww_alpha(subject.fresh()) == pytest.approx(details["alpha"].mean(), rel=1e-9)
    assert ww_alpha_weighted(subject.fresh()) == pytest.approx(details["alpha_weighted"].mean(), rel=1e-9)


def test_norms_without_weights_change_nothing(model, subject):
    """WeightWatcher itself raises an AttributeError here."""
    normed = torch.nn.Sequential(*model[:2], torch.nn.BatchNorm1d(96, affine=False), *model[2:])
    with_norm = genbench.Subject.from_module(normed, data=(torch.zeros(20, 64), torch.zeros(20)))
    assert ww_alpha(with_norm) == ww_alpha(subject.fresh())
    assert isinstance(normed[2], torch.nn.BatchNorm1d)


def test_a_network_without_layers_is_not_applicable():
    empty = genbench.Subject.from_module(torch.nn.Flatten(), data=(torch.zeros(20, 4), torch.zeros(20)))
    with pytest.raises(genbench.NotApplicable, match="alpha"):
        ww_alpha(empty)


def test_weights_without_a_spectrum_are_not_applicable(model):
    """WeightWatcher itself answers -1 here."""
    import copy

    zero = copy.deepcopy(model)
    for parameter in zero.parameters():
        torch.nn.init.zeros_(parameter)
    subject = genbench.Subject.from_module(zero, data=(torch.zeros(20, 64), torch.zeros(20)))
    with pytest.raises(genbench.NotApplicable, match="alpha"):
        ww_alpha(subject)


@pytest.mark.slow
def test_keeps_the_contract(check_measure):
    # The three measures differ in the column they read; one stands for all.
    check_measure("ww_alpha").assert_passed()
