"""Perturbation responses, the Gaussian process's evidence, and compression, against references."""

from __future__ import annotations

import copy
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import davies_bouldin_score
from torch import Tensor, nn

import genbench
from genbench.measures.compression import adaptive_code_bits
from genbench.measures.perturbation import davies_bouldin, gi_scores, pal_areas
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.nngp import evidence_examples, log_orthant_probabilities, nngp_features
from genbench.subject.responses import paired

GOLDEN = Path(__file__).parent / "golden" / "scoring"
CURVES = json.loads((GOLDEN / "curves.json").read_text())
EXPECTED = json.loads((GOLDEN / "golden_curves.json").read_text())


def read(name: str, subject: genbench.Subject) -> float:
    return load_registry().measures[name].item(subject.fresh())


@pytest.mark.parametrize("name", CURVES)
def test_gi_and_pal_of_given_curves(name) -> None:
    alpha, accuracy = (torch.tensor(CURVES[name][key], dtype=torch.float64) for key in ("alpha", "acc"))
    assert float(gi_scores(alpha, accuracy)) == pytest.approx(EXPECTED[name]["gi"], abs=1e-9)
    top, bottom = pal_areas(alpha, accuracy)
    assert float(top / bottom) == pytest.approx(EXPECTED[name]["pal_cumulative"], abs=1e-9)


def threshold(m: int = 200) -> genbench.Subject:
    """Class 1 above 0, class 0 below, on the points −1 and 3."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.zero_()
    inputs = torch.where(torch.arange(m) % 2 == 0, -1.0, 3.0)[:, None]
    return genbench.Subject.from_module(model, data=(inputs, torch.arange(m) % 2))


def test_response_curves_of_a_threshold_in_closed_form() -> None:
    """From −1 to 3 the class changes after a quarter of the way; from 3 to −1 not before half of it."""
    subject = threshold()
    curve = subject.response_curve("inter", 0)
    alpha, right = curve["alpha"], curve["right"]
    assert len(alpha) >= 20
    assert (float(alpha[0]), float(alpha[-1])) == (0.0, 0.5)
    curves = {tuple(row) for row in right.tolist()}
    from_below = tuple(bool(a < 0.25) for a in alpha)
    tie = tuple(bool(a <= 0.25) for a in alpha)  # the point exactly on the threshold goes to class 0
    assert curves <= {from_below, tie, tuple([True] * len(alpha))}
    assert len(curves) == 2
    assert read("gi_intra_l0", subject) == 0.0
    assert read("pal_intra_l0", subject) == pytest.approx(6.0)
    assert read("mixup_intra_l0", subject) == 1.0
    # Half of the pairs lose what lies beyond alpha = ¼: cumulated, (alpha − ¼)+, whose integral is 1/32.
    gi = read("gi_inter_l0", subject)
    share = float((~right[:, -1]).double().mean())
    assert gi == pytest.approx(share * (1 / 32) / (0.5 * 0.5**2), rel=0.2)
    assert gi.standard_error <= 0.2 * gi


@pytest.mark.parametrize("kind", ["intra", "inter"])
def test_pairs_are_of_one_class_or_of_two_and_many(kind) -> None:
    labels = torch.randint(0, 7, (301,), generator=torch.Generator().manual_seed(0))
    found = paired(labels, kind, rows=100, points=21)
    left = found.left[:, None].expand_as(found.right)
    assert ((labels[left] == labels[found.right]) == (kind == "intra")).all()
    assert (left != found.right).all()
    pairs = torch.stack([left.flatten(), found.right.flatten()], 1)
    assert len(pairs.unique(dim=0)) > 1500  # of 2100
    assert len(found.left) == 100
    assert found.seen == pytest.approx(100 / 301)


@pytest.mark.parametrize("kind", ["intra", "inter"])
def test_few_pairs_are_all_met(kind) -> None:
    labels = torch.tensor([0, 1, 0, 2, 1, 0])
    found = paired(labels, kind, rows=100, points=2)
    met = {(int(a), int(b)) for a, b in zip(found.left, found.right[:, 0], strict=True)}
    wanted = {
        (a, b) for a in range(6) for b in range(6) if a != b and (labels[a] == labels[b]) == (kind == "intra")
    }
    assert met == wanted
    assert len(found.left) == len(wanted)
    assert (found.seen, found.partners) == (1.0, 1.0)


def test_no_pairs_no_curve() -> None:
    model, inputs = nn.Linear(2, 4), torch.randn(4, 2)
    with pytest.raises(genbench.NotApplicable, match="of one class"):
        read("gi_intra_l0", genbench.Subject.from_module(model, data=(inputs, torch.arange(4))))
    with pytest.raises(genbench.NotApplicable, match="only one class"):
        read("gi_inter_l0", genbench.Subject.from_module(model, data=(inputs, torch.zeros(4))))
    with pytest.raises(genbench.NotApplicable, match="no first block"):
        read("gi_intra_l1", genbench.Subject.from_module(model, data=(inputs, torch.zeros(4))))


def test_davies_bouldin_agrees_with_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 6, (200,), generator=generator)
    points = torch.randn(200, 5, generator=generator).double() + labels[:, None]
    expected = davies_bouldin_score(points, labels)
    assert davies_bouldin(points @ points.T, labels) == pytest.approx(expected, rel=1e-9)


def test_dbi_mixup_is_the_product() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs, labels = torch.randn(90, 3), torch.randint(0, 3, (90,))
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    with torch.no_grad():
        first = model[1](model[0](inputs))
    expected = davies_bouldin_score(first, labels) * (1 - read("mixup_intra_l0", subject))
    assert read("dbi_mixup", subject) == pytest.approx(expected, rel=1e-4)


# -- the Gaussian process ----------------------------------------------------------------------------


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.5])
def test_evidence_of_two_points_in_closed_form(correlation) -> None:
    features = math.sqrt(abs(correlation)) * torch.tensor([[1.0], [math.copysign(1, correlation)]]).double()
    expected = 0.25 + math.asin(correlation) / (2 * math.pi)
    found = log_orthant_probabilities(features, 1 - abs(correlation), torch.ones(1, 2).double()).exp()
    assert float(found) == pytest.approx(expected, rel=5e-3)


def test_evidence_of_eight_points_against_scipys_integration() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(8, 8, generator=generator).double()
    kernel = root @ root.T / 8 + 0.1 * torch.eye(8)
    signs = torch.where(torch.rand(3, 8, generator=generator) > 0.5, 1.0, -1.0).double()
    for s, found in zip(signs, log_orthant_probabilities(root / 8**0.5, 0.1, signs).exp(), strict=True):
        turned = (s[:, None] * kernel * s).numpy()
        expected = multivariate_normal(np.zeros(8), turned, seed=0).cdf(np.zeros(8))
        assert float(found) == pytest.approx(expected, rel=0.02)


def sequential_ep(kernel: np.ndarray, y: np.ndarray, sweeps: int = 200) -> float:
    """Rasmussen & Williams, Algorithm 3.5, site by site and with dense inverses; steps for likelihoods."""
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    sigma, mu = kernel.copy(), np.zeros(n)
    for _ in range(sweeps):
        before = tau.copy()
        for i in range(n):
            cavity_tau = 1 / sigma[i, i] - tau[i]
            cavity_nu = mu[i] / sigma[i, i] - nu[i]
            mean, variance = cavity_nu / cavity_tau, 1 / cavity_tau
            z = y[i] * mean / np.sqrt(variance)
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            tilted_mean = mean + y[i] * np.sqrt(variance) * ratio
            tilted_variance = variance - variance * ratio * (z + ratio)
            new_tau = 1 / tilted_variance - cavity_tau
            new_nu = tilted_mean / tilted_variance - cavity_nu
            step = new_tau - tau[i]
            tau[i], nu[i] = new_tau, new_nu
            column = sigma[:, i].copy()
            sigma -= step / (1 + step * column[i]) * np.outer(column, column)
            mu = sigma @ nu
        sigma = np.linalg.inv(np.linalg.inv(kernel) + np.diag(tau))
        mu = sigma @ nu
        if np.abs(tau - before).max() < 1e-10 * (1 + np.abs(tau).max()):
            break
    variance = np.diag(sigma)
    cavity_tau = 1 / variance - tau
    cavity_mean = (mu / variance - nu) / cavity_tau
    site_mean, site_variance = nu / tau, 1 / tau
    z = y * cavity_mean * np.sqrt(cavity_tau)
    log_site = (
        norm.logcdf(z)
        + 0.5 * np.log(2 * np.pi * (1 / cavity_tau + site_variance))
        + (cavity_mean - site_mean) ** 2 / (2 * (1 / cavity_tau + site_variance))
    )
    gaussian = multivariate_normal(np.zeros(n), kernel + np.diag(site_variance)).logpdf(site_mean)
    return float(log_site.sum() + gaussian)


def test_evidence_of_fifty_points_against_a_dense_reference() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(50, 3))
    values, vectors = np.linalg.eigh(RBF(1.5)(points))
    features = torch.tensor(vectors * np.sqrt(values.clip(0)))
    kernel = RBF(1.5)(points) + 1e-2 * np.eye(50)
    for y in (np.sign(points[:, 0]), np.sign(generator.normal(size=50))):
        found = log_orthant_probabilities(features, 1e-2, torch.tensor(y)[None])
        assert float(found) == pytest.approx(sequential_ep(kernel, y), rel=1e-3)


def test_kernel_of_a_linear_network_in_closed_form() -> None:
    """torch draws weights and biases of a linear layer from U(−1/√d, 1/√d): K(x, x') ∝ x·x' + 1."""
    inputs = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    groups = [group for seed in range(12) for group in nngp_features(nn.Linear(3, 9), Inputs(inputs), seed)]
    outputs = torch.cat(groups, 1).flatten(1)
    found = outputs @ outputs.T
    expected = (inputs @ inputs.T + 1).double()
    torch.testing.assert_close(
        found / found.diagonal().mean(), expected / expected.diagonal().mean(), atol=0.06, rtol=0.05
    )


def test_ml_pacbayes_is_equation_24_less_its_bias_and_prefers_learnable_labels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    inputs = torch.randn(80, 4)
    values = []
    for labels in (inputs[:, 0] > 0, torch.rand(80) > 0.5):
        subject = genbench.Subject.from_module(model, data=(inputs, labels.long()))
        part = subject.log_evidence()
        whole, quarters = (
            1 - np.exp((part[name].numpy() - math.log(80) - 2 * math.log(20)) / 79)
            for name in ("evidence", "jackknife")
        )
        # Two classes, so groups were left out for both: 4·whole − 3·mean of the quarters left out.
        unbiased = 4 * whole.mean() - 3 * quarters.mean()
        assert read("ml_pacbayes", subject) == pytest.approx(unbiased)
        values.append(read("ml_pacbayes", subject))
    assert values[0] < values[1]


def digits(m: int, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    pixels, classes = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(classes))[:m]
    labels = torch.tensor(classes[rows])
    wrong = torch.from_numpy(np.random.default_rng(1).random(m) < noise)
    labels[wrong] = (labels[wrong] + 1 + torch.arange(int(wrong.sum())) % 9) % 10
    return torch.tensor(pixels[rows]).float() / 8 - 1, labels


def fully_connected(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def test_ml_pacbayes_falls_with_the_training_sets_size_and_rises_with_label_noise() -> None:
    def bound(m: int, noise: float = 0.0) -> genbench.Estimate:
        return read("ml_pacbayes", genbench.Subject.from_module(fully_connected(0), data=digits(m, noise)))

    sizes = [bound(m) for m in (75, 300, 1200)]
    noises = [sizes[1], bound(300, 0.1), bound(300, 0.3)]
    for worse, better in [*itertools.pairwise(sizes), *itertools.pairwise(reversed(noises))]:
        assert worse - better > 3 * math.hypot(worse.standard_error, better.standard_error)


def test_ml_pacbayes_is_the_same_to_the_bit_for_networks_of_one_architecture_and_training_set() -> None:
    data = digits(100)
    trained, other = (
        genbench.Subject.from_module(fully_connected(seed), data=data, seed=seed) for seed in (1, 2)
    )
    assert read("ml_pacbayes", trained) == read("ml_pacbayes", other)
    scaled = genbench.Subject.from_module(fully_connected(1), data=(1.5 * data[0], data[1]))
    assert read("ml_pacbayes", scaled) != read("ml_pacbayes", trained)


class WithToken(nn.Module):
    """A parameter that no module initialises, and a scale of one number."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.full((64,), size))
        self.scale = nn.Parameter(torch.tensor(size))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(x + self.token)) * self.scale


def test_ml_pacbayes_sees_nothing_of_trained_parameters_outside_modules() -> None:
    found = {
        float(read("ml_pacbayes", genbench.Subject.from_module(WithToken(size), data=digits(60))))
        for size in (0.1, 2.0)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("m", "numbers", "n"),
    [(75, 64, 75), (1200, 64, 1200), (60000, 784, 1200), (5000, 3072, 976), (900, 150528, 200)],
)
def test_examples_of_ml_pacbayes_grow_with_m_within_the_budget(m, numbers, n) -> None:
    assert evidence_examples(m, numbers) == n


# -- compression -------------------------------------------------------------------------------------


def arithmetic_code_length(symbols: list[int], alphabet: int) -> int:
    """Bits that a real adaptive arithmetic coder writes, with exact fractions."""
    counts = [Fraction(1, 2)] * alphabet
    low, width = Fraction(0), Fraction(1)
    for symbol in symbols:
        total = sum(counts)
        low += width * sum(counts[:symbol], Fraction(0)) / total
        width *= counts[symbol] / total
        counts[symbol] += 1
    bits = 0
    while True:  # the shortest binary fraction whose whole interval lies in [low, low + width)
        bits += 1
        numerator = math.ceil(low * 2**bits)
        if Fraction(numerator + 1, 2**bits) <= low + width:
            return bits


def test_code_lengths_are_those_of_an_arithmetic_coder() -> None:
    generator = np.random.default_rng(0)
    for alphabet in (2, 3, 7):
        symbols = generator.choice(alphabet, 60, p=generator.dirichlet(np.ones(alphabet))).tolist()
        counts = torch.tensor([symbols.count(k) for k in range(alphabet)])
        written = arithmetic_code_length(symbols, alphabet)
        assert written <= adaptive_code_bits(counts) <= written + 2


def test_an_unchanged_network_costs_next_to_nothing() -> None:
    """Every symbol is 0, of an alphabet of one: 2 bits of code, 1 for the alphabet, 16 a tensor."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 2), torch.randn(500, 3)
    labels = model(inputs).argmax(1)
    subject = genbench.Subject.from_module(model, initial=model, data=(inputs, labels))
    bits = 2 + 1 + 2 * 16
    complexity = bits * math.log(2) + 2 * math.log(bits) + math.log(500 * 5 / 0.05) + 2
    assert read("compression_bound", subject) == pytest.approx(math.sqrt(complexity / 999), rel=1e-9)


def test_a_small_change_compresses_better_than_a_new_network() -> None:
    torch.manual_seed(0)
    initial, inputs = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 2)), torch.randn(300, 10)
    bounds = []
    for moved in (1, 500):
        model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 2))
        model.load_state_dict(initial.state_dict())
        with torch.no_grad():
            model[0].weight.view(-1)[:moved] += torch.randn(moved)
        subject = genbench.Subject.from_module(model, initial=initial, data=(inputs, model(inputs).argmax(1)))
        bounds.append(read("compression_bound", subject))
    assert bounds[0] < bounds[1]


def plain_compression_bound(model: nn.Module, initial: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """The smallest of five bounds, each with all examples and with the code of every symbol."""
    m, found = len(labels), []
    changes = [p - q for p, q in zip(model.parameters(), initial.parameters(), strict=True)]
    for width in (0.5, 1, 2, 4, 8):
        cells = [width * float(c.detach().double().square().mean().sqrt().half()) for c in changes]
        symbols = [(c / cell).round() for c, cell in zip(changes, cells, strict=True)]
        every = torch.cat([s.flatten() for s in symbols])
        largest = int(every.abs().max())
        counts = torch.tensor([int((every == k).sum()) for k in range(-largest, largest + 1)])
        elias = 2 * math.floor(math.log2(largest + 1)) + 1
        bits = adaptive_code_bits(counts) + elias + 16 * len(changes)
        coded = copy.deepcopy(initial)
        for p, s, cell in zip(coded.parameters(), symbols, cells, strict=True):
            p.data += s * cell
        error = float((coded(inputs).argmax(1) != labels).double().mean())
        complexity = bits * math.log(2) + 2 * math.log(bits) + math.log(m * 5 / 0.05) + 2
        found.append(error + math.sqrt(complexity / (2 * m - 1)))
    return min(found)


@pytest.mark.parametrize(("m", "least", "most"), [(40, 80, 80), (3000, 12_001, 14_999)])
def test_codes_that_cannot_win_are_not_tried(m: int, least: int, most: int) -> None:
    """Of few examples the length decides, and two codes are tried; of more, most of five passes are made."""
    torch.manual_seed(0)
    initial, inputs = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)), torch.randn(m, 10)
    model = copy.deepcopy(initial)
    with torch.no_grad():
        for p in model.parameters():
            p += torch.randn_like(p)
    labels, seen = model(inputs).argmax(1), []
    model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    subject = genbench.Subject.from_module(model, initial=initial, data=(inputs, labels))
    seen.clear()
    expected = plain_compression_bound(model, initial, inputs, labels)
    assert read("compression_bound", subject) == pytest.approx(expected, rel=1e-12)
    assert least <= sum(count for count in seen if count > 2) <= most  # two were to see what they keep
