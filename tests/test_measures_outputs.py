"""Measures of outputs: calibration, information criteria; against scikit-learn, scipy and exact sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss
from torch import nn

import genbench
from genbench.plugin.registry import load_registry


def read(name: str, subject: genbench.Subject) -> float:
    return load_registry().measures[name].item(subject.fresh())


@pytest.fixture(scope="module")
def outputs() -> tuple[genbench.Subject, np.ndarray, np.ndarray]:
    """A network that returns its input: the logits are ours to choose. Overconfident and half right."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(700, 4, generator=generator)
    right = torch.rand(700, generator=generator) < 0.6
    labels = torch.where(right, logits.argmax(1), torch.randint(0, 4, (700,), generator=generator))
    subject = genbench.Subject.from_module(nn.Identity(), data=(logits, labels))
    return subject, logits.double().numpy(), labels.numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def bins(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share and |accuracy − confidence| of scikit-learn's 15 uniform bins, empty ones left out."""
    p = softmax(logits)
    confidence, hit = p.max(1), p.argmax(1) == labels
    accuracy, mean_confidence = calibration_curve(hit, confidence, n_bins=15, strategy="uniform")
    counts, _ = np.histogram(confidence, np.linspace(0, 1, 16))
    return counts[counts > 0] / len(labels), np.abs(accuracy - mean_confidence)


def test_calibration_errors_agree_with_scikit_learn(outputs) -> None:
    subject, logits, labels = outputs
    shares, gaps = bins(logits, labels)
    assert read("ece", subject) == pytest.approx((shares * gaps).sum(), abs=1e-9)
    assert read("mce", subject) == pytest.approx(gaps.max(), abs=1e-9)
    assert read("reliability_diagram", subject) == pytest.approx(gaps.sum(), abs=1e-9)


def test_adaptive_calibration_error_by_loops(outputs) -> None:
    subject, logits, labels = outputs
    p = softmax(logits)
    total = 0.0
    for k in range(4):
        order = np.argsort(p[:, k], kind="stable")
        for part in np.array_split(order, 15):
            total += abs((labels[part] == k).mean() - p[part, k].mean())
    assert read("ace", subject) == pytest.approx(total / (4 * 15), abs=1e-9)


def test_temperature_scaling_agrees_with_l_bfgs(outputs) -> None:
    subject, logits, labels = outputs

    def loss(log_t: np.ndarray) -> float:
        return log_loss(labels, softmax(logits / np.exp(log_t[0])), labels=range(4))

    best = np.exp(minimize(loss, [0.0], method="L-BFGS-B").x[0])
    shares, gaps = bins(logits / best, labels)
    assert read("temperature_scaling", subject) == pytest.approx((shares * gaps).sum(), abs=1e-3)
    assert best > 1.5  # the logits are overconfident


def test_entropies_agree_with_scikit_learn_and_scipy(outputs) -> None:
    from scipy.stats import entropy

    subject, logits, labels = outputs
    p = softmax(logits)
    assert read("cross_entropy", subject) == pytest.approx(log_loss(labels, p), rel=1e-9)
    assert read("negative_entropy", subject) == pytest.approx(-entropy(p, axis=1).mean(), rel=1e-9)


def test_certain_and_right_everywhere_is_perfectly_calibrated() -> None:
    labels = torch.arange(40) % 3
    logits = 1000 * nn.functional.one_hot(labels, 3).float()
    subject = genbench.Subject.from_module(nn.Identity(), data=(logits, labels))
    for name in ("ece", "mce", "ace", "reliability_diagram", "temperature_scaling", "cross_entropy"):
        assert read(name, subject) == pytest.approx(0, abs=1e-12), name


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_networks_that_fit_their_data_are_ties_after_the_best_temperature(scale) -> None:
    """At T = 0 every confidence is 1 and every example right; in either precision, to the bit."""
    torch.manual_seed(0)
    labels = torch.arange(60) % 4
    logits = scale * (torch.rand(60, 4) + 2 * nn.functional.one_hot(labels, 4))
    for precision in (torch.float32, torch.float64):
        subject = genbench.Subject.from_module(nn.Identity(), data=(logits.to(precision), labels))
        assert read("temperature_scaling", subject) == 0.0


def test_temperature_scaling_is_the_same_in_both_precisions_and_knows_its_bounds() -> None:
    torch.manual_seed(1)
    labels = torch.arange(200) % 4
    logits = torch.randn(200, 4) + 2 * nn.functional.one_hot(labels, 4)
    found = [
        read("temperature_scaling", genbench.Subject.from_module(nn.Identity(), data=(x, labels)))
        for x in (logits, logits.double())
    ]
    assert found[0] > 0.01
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    worse_than_chance = genbench.Subject.from_module(nn.Identity(), data=(-logits, labels))
    with pytest.raises(genbench.NotApplicable, match="no temperature"):
        read("temperature_scaling", worse_than_chance)


# -- information criteria on logistic regression ------------------------------------------------------


def logistic(m: int = 90, classes: int = 3) -> tuple[genbench.Subject, nn.Linear, np.ndarray, np.ndarray]:
    torch.manual_seed(0)
    model = nn.Linear(2, classes)
    inputs = torch.randn(m, 2)
    labels = (inputs @ torch.randn(2, classes) + torch.randn(m, classes)).argmax(1)
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    return subject, model, inputs.double().numpy(), labels.numpy()


def test_aic_is_twice_the_exact_sum_of_log_likelihoods_plus_twice_the_parameters() -> None:
    subject, model, x, labels = logistic()
    logits = x @ model.weight.detach().double().numpy().T + model.bias.detach().double().numpy()
    likelihood = np.log(softmax(logits)[np.arange(90), labels]).sum()
    assert read("aic", subject) == pytest.approx(-2 * likelihood + 2 * 9, rel=1e-6)
    assert read("aic_bias", subject) == 18


def test_tic_of_logistic_regression_from_its_exact_information_matrices() -> None:
    """Hessian: mean of (diag p − p pᵀ) ⊗ (x, 1)(x, 1)ᵀ; scores: (p − e_y) ⊗ (x, 1)."""
    subject, model, x, labels = logistic()
    with_one = np.c_[x, np.ones(90)]
    weights = np.c_[model.weight.detach().double().numpy(), model.bias.detach().double().numpy()]
    p = softmax(with_one @ weights.T)
    error = p - np.eye(3)[labels]
    j = np.einsum("nk,ni->nki", error, with_one) ** 2
    i = np.einsum("nk,ni->nki", p * (1 - p), with_one**2)
    j, i = j.mean(0).ravel(), i.mean(0).ravel()
    bias = (j / (i + 1e-3 * i.mean())).sum()
    loss = -np.log(p[np.arange(90), labels]).mean()
    assert read("tic_bias", subject) == pytest.approx(bias, rel=1e-4)
    assert read("tic", subject) == pytest.approx(loss + bias, rel=1e-4)
    assert read("tic_bias_bound", subject) == pytest.approx(j.sum() / i.min(), rel=1e-4)
    assert bias <= j.sum() / i.min()


def test_tic_with_more_classes_than_directions_taken_exactly_is_unbiased() -> None:
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 12), torch.randn(200, 3)
    labels = torch.randint(0, 12, (200,))
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    with_one = np.c_[inputs.double().numpy(), np.ones(200)]
    weights = np.c_[model.weight.detach().double().numpy(), model.bias.detach().double().numpy()]
    p = softmax(with_one @ weights.T)
    error = p - np.eye(12)[labels.numpy()]
    j = np.einsum("nk,ni->nki", error, with_one) ** 2
    i = np.einsum("nk,ni->nki", p * (1 - p), with_one**2)
    assert read("tic_bias", subject) == pytest.approx(
        (j.mean(0) / (i.mean(0) + 1e-3 * i.mean())).sum(), rel=0.1
    )


def test_waic_from_the_likelihoods_of_the_draws() -> None:
    """LPPD and variance by their definitions; the draws are the subject's own."""
    subject, *_ = logistic()
    likelihoods = subject.weight_noise("tensor")["log_likelihoods"].numpy()
    assert likelihoods.shape[1] == 90
    bias = 2 * likelihoods.var(0, ddof=1).sum()
    lppd = np.log(np.exp(likelihoods).mean(0)).sum()
    assert read("waic_bias", subject) == pytest.approx(bias)
    assert read("waic", subject) == pytest.approx(-2 * lppd + bias)


def test_waic_bias_of_a_linear_model_in_closed_form() -> None:
    """For tiny noise, Var[log p] = g_nᵀ S g_n with S the noise's covariance: scores and spreads are known."""
    subject, model, x, labels = logistic()
    with_one = np.c_[x, np.ones(90)]
    weights = np.c_[model.weight.detach().double().numpy(), model.bias.detach().double().numpy()]
    error = softmax(with_one @ weights.T) - np.eye(3)[labels]
    spread = [0.05 * float(t.detach().double().std()) for t in (model.weight, model.bias)]
    variances = (error**2).sum(1) * ((x**2).sum(1) * spread[0] ** 2 + spread[1] ** 2)
    found = read("waic_bias", subject)
    assert found == pytest.approx(2 * variances.sum(), rel=3 * math.sqrt(2 / found.samples))
