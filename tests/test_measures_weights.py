"""Measures of weights, sharpness and curvature against closed forms, numpy and torch's own Hessian."""

from __future__ import annotations

import itertools
import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import genbench
from genbench.plugin.registry import load_registry
from genbench.subject import gradient_noise, spectral


def read(name: str, subject: genbench.Subject) -> float:
    return load_registry().measures[name].item(subject.fresh())


def small(m: int = 60, classes: int = 3, seed: int = 0) -> tuple[genbench.Subject, nn.Module, torch.Tensor]:
    """A network with 43 parameters, the module itself and its inputs; m is below every subset's size."""
    torch.manual_seed(seed)
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes))  # noqa: E731
    model, initial = make(), make()
    inputs = torch.randn(m, 4)
    labels = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long() * (classes > 2)
    subject = genbench.Subject.from_module(model, initial=initial, data=(inputs, labels))
    return subject, model, inputs


def theta(model: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()


def test_counts_and_norms_of_all_parameters() -> None:
    subject, model, _ = small()
    w = theta(model)
    assert len(w) == 43
    assert read("param_count", subject) == 43
    assert read("vcdim", subject) == pytest.approx(43 * math.log(43))
    assert read("magnitude", subject) == pytest.approx(np.linalg.norm(w))
    moved = w - theta(subject.initial_model)
    assert read("frobenius_distance", subject) == pytest.approx(np.linalg.norm(moved))


def test_norms_over_the_tenth_percentile_margin() -> None:
    subject, model, inputs = small()
    with torch.no_grad():
        logits = model(inputs).double().numpy()
    labels = subject.labels().numpy()
    own = logits[np.arange(60), labels]
    logits[np.arange(60), labels] = -np.inf
    q = np.sort(own - logits.max(1))[60 // 10 - 1]
    w = theta(model)
    assert q < 0  # an untrained network: the sign is kept
    assert read("inverse_margin_p10", subject) == pytest.approx(1 / q, rel=1e-5)
    assert read("l2_over_margin_p10", subject) == pytest.approx(np.linalg.norm(w) / abs(q), rel=1e-5)
    assert read("l1_over_margin_p10", subject) == pytest.approx(np.abs(w).sum() / abs(q), rel=1e-5)
    assert read("margin_normalized_param_norm", subject) == read("l2_over_margin_p10", subject)


def test_spectral_norms_of_flattened_kernels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    subject = genbench.Subject.from_module(model, data=(torch.randn(20, 2, 4, 4), torch.zeros(20)))
    largest = [
        np.linalg.svd(w.detach().double().numpy().reshape(len(w), -1), compute_uv=False)[0]
        for w in (model[0].weight, model[3].weight)
    ]
    assert read("spectral_norm_per_layer", subject) == pytest.approx(np.mean(largest))
    assert read("spec_sum", subject) == pytest.approx(np.sum(largest))
    assert read("spec_prod", subject) == pytest.approx(np.log(largest).sum())
    layers = read("spec_sum", subject).layers
    assert layers == pytest.approx({"0.weight": largest[0], "3.weight": largest[1]})


@pytest.mark.parametrize(
    ("layer", "grid"),
    [
        (nn.Conv2d(32, 36, 3, bias=False), 64),
        (nn.Conv2d(48, 40, 3, stride=2, padding=1, bias=False), 17),
        (nn.Conv2d(96, 96, 3, groups=2, bias=False), 8),
        (nn.Conv2d(32, 32, 5, bias=False), 4),  # taps beyond the grid
        (nn.Conv2d(33, 32, (1, 3), bias=False), 28),
        (nn.Conv2d(32, 32, 2, bias=False), 15),
        (nn.Conv1d(64, 40, 7, bias=False), 64),
        (nn.Conv3d(32, 34, 2, bias=False), 5),
        (nn.Conv2d(3, 64, 7, bias=False), 32),  # few channels: every frequency is decomposed
    ],
    ids=lambda value: (
        f"{type(value).__name__} {tuple(value.weight.shape)}" if isinstance(value, nn.Module) else None
    ),
)
@pytest.mark.parametrize("kind", ["random", "one tap", "two equal channels"])
def test_a_convolutions_norm_is_the_largest_over_all_frequencies(layer, grid, kind) -> None:
    generator = torch.Generator().manual_seed(grid)
    weight = torch.randn(layer.weight.shape, generator=generator)
    if kind == "one tap":  # every frequency is the same
        weight.flatten(2)[:, :, 1:] = 0
    elif kind == "two equal channels":
        weight[1] = weight[0]
    largest = 0.0
    for block in weight.double().numpy().reshape(layer.groups, -1, *weight.shape[1:]):
        axes = tuple(range(2, block.ndim))
        # A kernel beyond the grid comes round: its taps are summed up where they meet, not cut off.
        wrapped = np.zeros(block.shape[:2] + (grid,) * len(axes))
        for tap in np.ndindex(block.shape[2:]):
            wrapped[(..., *(t % grid for t in tap))] += block[(..., *tap)]
        spectrum = np.moveaxis(np.fft.fftn(wrapped, axes=axes), (0, 1), (-2, -1))
        largest = max(largest, float(np.linalg.svd(spectrum, compute_uv=False).max()))
    assert spectral.spectral_norm(layer, weight, grid) == pytest.approx(largest, rel=1e-5)


def per_example_gradients(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = []
    for x, y in zip(inputs, labels, strict=True):
        gradient = torch.autograd.grad(cross_entropy(model(x[None]), y[None]), list(model.parameters()))
        rows.append(torch.cat([g.flatten() for g in gradient]))
    return torch.stack(rows).double()


def test_fisher_rao_norm_from_gradients_of_single_examples() -> None:
    subject, model, inputs = small()
    products = per_example_gradients(model, inputs, subject.labels()).numpy() @ theta(model)
    found = read("fisher_rao_norm", subject)
    assert found == pytest.approx(np.sqrt(np.mean(products**2)), rel=1e-4)
    assert found.standard_error == 0  # all examples were looked at


class Attentive(nn.Module):
    """Torch's own attention, which has a fused path in eval mode; as a layer and inside a block."""

    def __init__(self, block: bool) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True) if block else None
        self.attention = None if block else nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.block(x) if self.block else self.attention(x, x, x, need_weights=False)[0]
        return self.head(mixed.mean(1))


@pytest.mark.parametrize("block", [False, True])
def test_fisher_rao_norm_of_torchs_own_attention(block) -> None:
    torch.manual_seed(0)
    model, inputs, labels = Attentive(block).eval(), torch.randn(24, 5, 4), torch.arange(24) % 3
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    products = per_example_gradients(model, inputs, labels).numpy() @ theta(model)
    assert read("fisher_rao_norm", subject) == pytest.approx(np.sqrt(np.mean(products**2)), rel=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()  # as it was


def flat_loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor):
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]

    def loss(vector: torch.Tensor) -> torch.Tensor:
        pieces = vector.split([s.numel() for s in shapes])
        state = {n: p.view(s) for n, p, s in zip(names, pieces, shapes, strict=True)}
        return cross_entropy(torch.func.functional_call(model, state, (inputs,)), labels)

    return loss


def full_hessian(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    model = model.double()
    vector = torch.cat([p.detach().flatten() for p in model.parameters()])
    loss = flat_loss(model, inputs.double(), labels)
    return torch.autograd.functional.hessian(loss, vector).numpy()


def test_top_eigenvalue_and_trace_of_the_hessian() -> None:
    subject, model, inputs = small()
    hessian = full_hessian(model, inputs, subject.labels())
    top = read("hessian_top_eigenvalue", subject)
    assert top == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=0.01)
    trace = read("hessian_trace", subject)
    assert trace == pytest.approx(np.trace(hessian), rel=1e-4)  # so small a network is summed up exactly


@pytest.mark.parametrize(("width", "tolerance"), [(3, 1e-4), (600, 0.15)])
def test_trace_of_logistic_regressions_hessian_in_closed_form(width, tolerance) -> None:
    torch.manual_seed(0)
    model = nn.Linear(width, 2)
    inputs, labels = torch.randn(40, width), torch.arange(40) % 2
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    # Logistic regression: the Hessian is the mean of (diag p − p pᵀ) ⊗ (x, 1)(x, 1)ᵀ.
    x = np.c_[inputs.double().numpy(), np.ones(40)]
    p = torch.softmax(model(inputs), 1).detach().double().numpy()
    trace = np.mean((p * (1 - p)).sum(1) * (x**2).sum(1))
    found = read("hessian_trace", subject)
    assert found == pytest.approx(trace, rel=tolerance)
    if width > 3:  # too large to be summed up: Lanczos and random signs
        assert 0 < found.standard_error <= 0.1 * found  # probes to 7 %, and one more like the furthest
        assert found == pytest.approx(trace, abs=4 * found.standard_error)


def mini_batches(subject: genbench.Subject) -> list[torch.Tensor]:
    """The batches of the subject's seed: their rows are drawn by torch.randperm from the part's own seed."""
    from genbench.keys import derive_seed
    from genbench.subject.gradients import _batches
    from genbench.subject.sampling import example_order

    generator = torch.Generator().manual_seed(derive_seed(0, "part", "batch_gradients", {}))
    return list(_batches(example_order(subject.m), 24, generator))


def test_gradient_statistics_of_mini_batches() -> None:
    subject, model, inputs = small(m=320)
    labels = subject.labels()
    batches = mini_batches(subject)
    assert [len(rows.unique()) for rows in batches] == [32] * 24
    gradients = torch.stack(
        [per_example_gradients(model, inputs[rows], labels[rows]).mean(0) for rows in batches]
    ).numpy()
    norms = np.linalg.norm(gradients, axis=1)
    with torch.no_grad():
        error = (model(inputs).softmax(1) - nn.functional.one_hot(labels, 3)).double().numpy()

    def doubt(rows: np.ndarray) -> float:
        return math.hypot(np.linalg.norm(error[rows]), np.linalg.norm(error[rows].sum(0)))

    part = subject.batch_gradients()
    doubts = np.array([doubt(rows.numpy()) for rows in batches])
    np.testing.assert_allclose(part["norms"], norms, rtol=1e-4)
    np.testing.assert_allclose(part["doubts"], doubts, rtol=1e-4)
    random = np.random.default_rng(0)
    at_large = np.mean([doubt(random.permutation(320)[:32]) for _ in range(4000)])
    assert float(part["mean_doubt"]) == pytest.approx(at_large, rel=0.01)
    expected = np.polyval(np.polyfit(doubts, norms, 1), float(part["mean_doubt"]))
    assert read("gradient_norm", subject) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("squared", [800, 256])
def test_the_noise_scale_is_that_of_all_batches(squared) -> None:
    """And its parts: against 4,000 batches of 32, which leave 3 % open; from all examples and from some."""
    subject, model, inputs = small(m=800)
    each = per_example_gradients(model, inputs, subject.labels()).numpy()
    generator = np.random.default_rng(0)
    batches = np.stack([each[generator.permutation(800)[:32]].mean(0) for _ in range(4000)])
    square = each.mean(0) ** 2
    expected = np.mean(batches.var(0) / (square + 1e-3 * square.mean()))
    with patch.object(gradient_noise, "_SQUARED", squared):
        scale = read("gradient_noise_scale", subject)
        variance, proxy = (read(name, subject) for name in ("gradient_noise_final_var", "flatness_proxy"))
    assert variance == pytest.approx(batches.var(0).mean(), rel=0.03, abs=2 * variance.standard_error)
    assert proxy == pytest.approx((batches**2).mean() * 1.001, rel=0.03, abs=2 * proxy.standard_error)
    assert scale == pytest.approx(expected, abs=0.03 * expected + 2 * scale.standard_error)
    assert scale.standard_error < 0.3 * expected
    assert (scale.standard_error == 0) == (squared == 800)


def test_sharpness_is_the_rise_after_one_step_uphill() -> None:
    subject, model, inputs = small(m=320)
    labels = subject.labels()
    vector = torch.tensor(theta(model), dtype=torch.float32)
    rises: dict[float, list[float]] = {}
    for rows in mini_batches(subject):
        loss = flat_loss(model, inputs[rows], labels[rows])
        gradient = torch.func.grad(loss)(vector)
        for radius in (0.05, 0.01, 10**-1.5, 0.1, 10**-0.5, 1.0):
            moved = vector + radius * gradient / gradient.norm()
            rises.setdefault(radius, []).append(float(loss(moved) - loss(vector)))
    # Both numbers that correct a mean are tested above.
    part = subject.batch_gradients()
    doubts, at_large = part["doubts"].numpy(), float(part["mean_doubt"])

    def corrected(values: list[float]) -> float:
        return float(np.polyval(np.polyfit(doubts, values, 1), at_large))

    assert read("sharpness", subject) == pytest.approx(corrected(rises.pop(0.05)), rel=1e-3)
    steepest = max(corrected(rise) / radius for radius, rise in rises.items())
    assert read("adaptive_sharpness", subject) == pytest.approx(steepest, rel=1e-3)


def test_input_gradients_of_a_linear_network_in_closed_form() -> None:
    """dl/dx = Wᵀ(p − e_y)."""
    torch.manual_seed(0)
    model, inputs, labels = nn.Linear(5, 3), torch.randn(30, 5), torch.arange(30) % 3
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    with torch.no_grad():
        error = model(inputs).softmax(1) - nn.functional.one_hot(labels, 3)
        expected = (error @ model.weight).norm(dim=1).mean()
    assert read("input_gradient_norm", subject) == pytest.approx(float(expected), rel=1e-5)


def increases(subject: genbench.Subject, kind: str) -> np.ndarray:
    """Of the mean loss, in every draw of noise."""
    part = subject.weight_noise(kind)
    return (part["clean"] - part["log_likelihoods"]).mean(1).numpy()


def largest_of_five(values: np.ndarray) -> float:
    """Mean over all choices of five, one by one."""
    return float(np.mean([max(chosen) for chosen in itertools.combinations(values, 5)]))


def test_noise_on_the_weights_of_a_linear_loss_surface() -> None:
    """Two equal logits and tiny noise: the loss rises by half the mean square of the logits' difference / 4.

    With logits z and noise dz, log-sum-exp to second order: rise = ½ dzᵀ(diag p − p pᵀ)dz + a term linear in
    dz whose mean is 0; for p = (½, ½) the first is (dz_1 − dz_2)²/8.
    """
    model = nn.Linear(1, 2, bias=False)
    nn.init.constant_(model.weight, 1.0)
    inputs, labels = torch.ones(40, 1), torch.arange(40) % 2  # the linear terms cancel over the labels
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    scale = 0.05 * 1.001
    rises = increases(subject, "magnitude")
    # (dz_1 − dz_2) ~ N(0, 2 scale²), so the mean rise is 2·scale²/8 and its square chi-squared.
    assert rises.mean() == pytest.approx(scale**2 / 4, abs=5 * scale**2 / 4 * math.sqrt(2 / len(rises)))
    assert read("sharpness_magflat", subject) == pytest.approx(largest_of_five(rises))
    # std of the weight tensor is 0: noise in proportion to it does nothing
    assert read("sharpness_magnitude", subject) == pytest.approx(0.0, abs=1e-12)


def test_noise_scales_with_the_parameters_size() -> None:
    subject, model, _ = small()
    plain = largest_of_five(increases(subject, "tensor"))
    w, moved = theta(model), theta(model) - theta(subject.initial_model)
    assert read("sharpness_magnitude", subject) == pytest.approx(plain * np.linalg.norm(w) / math.sqrt(43))
    expected = plain * np.linalg.norm(moved) / math.sqrt(43)
    assert read("sharpness_magnitude_init", subject) == pytest.approx(expected)


def gaussian_divergence(mean: np.ndarray, spread: np.ndarray, prior: float) -> float:
    """KL by torch's own Gaussians."""
    from torch.distributions import Normal, kl_divergence

    q = Normal(torch.tensor(mean), torch.tensor(spread))
    return float(kl_divergence(q, Normal(torch.zeros(len(mean)).double(), prior)).sum())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pac_bayes_bound", "isotropic"),
        ("pac_bayes_magflat", "magnitude"),
        ("pac_bayes_magnitude", "tensor"),
        ("pac_bayes_magnitude_init", "tensor"),
    ],
)
def test_pac_bayes_bounds_with_the_divergence_of_a_library(name, kind) -> None:
    subject, model, _ = small()
    w = theta(model)
    tensor_spread = np.concatenate(
        [np.full(p.numel(), 0.05 * p.detach().double().std().item()) for p in model.parameters()]
    )
    mean, prior = w, 0.1
    if name == "pac_bayes_bound":
        spread = np.full(43, 0.01)
    elif name == "pac_bayes_magflat":
        spread = 0.05 * (np.abs(w) + 1e-3)
    else:
        spread = tensor_spread
        mean = w - theta(subject.initial_model) if name.endswith("init") else w
        prior = np.linalg.norm(mean) / math.sqrt(43)
    divergence = gaussian_divergence(mean, spread, prior)
    error = float(subject.weight_noise(kind)["wrong"].double().mean())
    bound = error + math.sqrt((divergence + math.log(2 * math.sqrt(60) / 0.05)) / 120)
    assert read(name, subject) == pytest.approx(bound, rel=1e-5)


def test_gradient_noise_in_training_comes_from_the_trace() -> None:
    _, model, inputs = small()
    trace = {"loss": torch.ones(3), "gradient_variance": torch.tensor([1.0, 2.0, 6.0])}
    subject = genbench.Subject.from_module(model, data=(inputs, torch.zeros(60)), trace=trace)
    assert read("gradient_noise_var", subject) == 3.0
    without = genbench.Subject.from_module(
        model, data=(inputs, torch.zeros(60)), trace={"loss": torch.ones(3)}
    )
    with pytest.raises(genbench.NotApplicable, match="gradient_variance"):
        read("gradient_noise_var", without)


def test_sigma_is_the_end_of_its_interval_where_noise_costs_nothing_and_refused_where_it_costs_all() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(50, 3)
    constant = nn.Linear(3, 2)
    nn.init.zeros_(constant.weight)
    nn.init.constant_(constant.bias, 0.0)
    labels = torch.arange(50) % 2
    subject = genbench.Subject.from_module(constant, data=(inputs, labels))
    assert subject.sigma() == pytest.approx(2.0, abs=1e-3)
    fragile = nn.Linear(3, 2)
    with torch.no_grad():
        fragile.weight.mul_(1e-9)
        fragile.bias.zero_()
    fitted = genbench.Subject.from_module(fragile, data=(inputs, fragile(inputs).argmax(1)))
    with pytest.raises(genbench.NotApplicable, match="even noise"):
        fitted.sigma()
