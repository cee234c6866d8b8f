"""Reported errors hold: the value on the whole training set lies within two of them, whatever the seed.

A small version of tests/coverage_study.py, which says how that is measured.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from functools import cache
from unittest.mock import patch

import coverage_study as study
import pytest
import torch
from torch import nn

import genbench
from genbench.measures._estimates import (
    expected_largest,
    jackknife,
    jackknife_bias,
    mean_by,
    mean_over_examples,
    mean_over_rows,
    resampled,
)
from genbench.subject import fitting, gradients, information, noise, sigma
from genbench.subject.inputs import Inputs
from genbench.subject.parts import LocalParts
from genbench.subject.sampling import drawn_by_size, example_order, examples
from genbench.subject.subject import TrainedNetwork

SEEDS = 6
NAMES = [
    "pacbayes_flatness", "pacbayes_mag_flatness", "sharpness", "sharpness_magnitude", "sharpness_magflat",
    "pac_bayes_magnitude", "hessian_top_eigenvalue", "hessian_trace", "gradient_norm", "tic_bias", "waic",
    "gi_intra_l0", "gi_inter_l1", "pal_inter_l0", "mixup_intra_l0", "dbi_mixup",
]  # fmt: skip


@cache
def studied() -> list[dict]:
    """Two perceptrons, few seeds, and fewer draws for the value on all data."""
    torch.set_num_threads(1)
    found = []
    for number in (0, 1):
        network = study.trained(number, 800)
        found.append(
            {
                "name": network.name,
                "truth": study.on_all_data(network, NAMES, work=0.2),
                "readings": [study.readings(network, seed, NAMES) for seed in range(SEEDS)],
            }
        )
    return found


def test_the_value_on_all_data_is_within_two_errors() -> None:
    """Of 192 readings; the studied 90 % less what twelve readings of one measure leave to chance."""
    shares = {name: study.coverage(studied(), name) for name in NAMES}
    assert statistics.fmean(shares.values()) >= 0.9, shares
    assert min(shares.values()) >= 0.6, shares


def test_errors_are_not_larger_than_need_be() -> None:
    """Against the scatter of the readings: so few of them miss what is rare, which the errors allow for."""
    ratios = {}
    for name in NAMES:
        scatter = [
            (v - n["truth"][name]) ** 2 for n in studied() for v, _ in (r[name] for r in n["readings"])
        ]
        errors = [e**2 for n in studied() for _, e in (r[name] for r in n["readings"])]
        ratios[name] = math.sqrt(sum(errors) / sum(scatter))
    assert statistics.median(ratios.values()) <= 2.5, ratios
    assert max(ratios.values()) <= 6, ratios


def test_subsets_nest_and_training_sets_of_other_sizes_share_them() -> None:
    order = example_order(1000)
    assert sorted(order.tolist()) == list(range(1000))
    smaller = example_order(300)
    assert smaller.tolist() == [row for row in order.tolist() if row < 300]
    network = TrainedNetwork("any", nn.Identity(), None, Inputs(torch.arange(1000.0)), torch.arange(1000), 2)
    few, more = (set(examples(network, size)[1].tolist()) for size in (128, 256))
    assert len(few) == 128
    assert few < more


def test_all_examples_leave_nothing_to_their_choice() -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert mean_over_examples(values, 50).standard_error == 0
    half = mean_over_examples(values, 100).standard_error
    assert half == pytest.approx(mean_over_examples(values, 10**9).standard_error * math.sqrt(0.5))


def test_the_jackknife_of_a_mean_is_its_standard_error_and_the_most_extreme_value() -> None:
    values = torch.randn(40, generator=torch.Generator().manual_seed(0)).double()
    without = torch.stack([torch.cat([values[:k], values[k + 1 :]]).mean() for k in range(40)])
    classic = float(values.std()) / math.sqrt(40)
    extreme = float((values - values.mean()).abs().max()) / 39
    assert jackknife(without) == pytest.approx(math.hypot(classic, extreme))


def test_the_jackknife_takes_the_bias_from_a_variance_without_bessels_correction() -> None:
    values = torch.randn(12, generator=torch.Generator().manual_seed(0)).double()
    without = torch.stack([torch.cat([values[:k], values[k + 1 :]]).var(correction=0) for k in range(12)])
    plain = float(values.var(correction=0))
    assert plain - jackknife_bias(plain, without) == pytest.approx(float(values.var()))
    assert jackknife_bias(plain, without[:1]) == 0


def test_the_expected_largest_of_uniform_numbers() -> None:
    """k/(k + 1) of the range."""
    values = torch.linspace(0, 1, 2001)
    assert expected_largest(values, 5) == pytest.approx(5 / 6, rel=2e-3)
    assert expected_largest(values, 1) == pytest.approx(0.5)


def test_sums_of_rows_drawn_by_size_are_unbiased_and_exact_for_sizes() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.rand(300, generator=generator).double().pow(8) + 0.01
    values = sizes * (1 + 0.2 * torch.randn(300, generator=generator).double())
    sums = []
    for _ in range(300):
        rows, chance = drawn_by_size(sizes, 60, generator)
        assert 59 <= len(rows.unique()) == len(rows) <= 61
        # Not of those that were certain: of the rest sizes are in proportion to the chance.
        assert float((sizes[rows] / chance).sum()) == pytest.approx(float(sizes.sum()), rel=0.02)
        sums.append(float((values[rows] / chance).sum()))
    error = statistics.stdev(sums) / math.sqrt(300)
    assert statistics.fmean(sums) == pytest.approx(float(values.sum()), abs=4 * error)
    assert statistics.stdev(sums) < 0.02 * float(values.sum())
    everything, chance = drawn_by_size(sizes, 300, generator)
    assert len(everything) == 300
    assert (chance == 1).all()


def test_rows_of_one_size_are_drawn_in_any_company_where_they_are_mixed() -> None:
    """In the fixed order a tenth of them comes in ten ways only."""
    generator, sizes = torch.Generator().manual_seed(0), torch.ones(200)
    for mixed, least, most in ((False, 2, 10), (True, 40, 40)):
        drawn = [drawn_by_size(sizes, 20, generator, mixed=mixed) for _ in range(40)]
        assert least <= len({tuple(sorted(rows.tolist())) for rows, _ in drawn}) <= most
        assert all(len(rows) == 20 and chance.allclose(chance.new_tensor(0.1)) for rows, chance in drawn)


@pytest.mark.parametrize(("rows", "of_each"), [(60, 1), (60, 3)])
def test_the_error_of_rows_is_that_of_many_samples(rows, of_each) -> None:
    """Scores a(x) + b(x, partner) of 100 x with 50 partners each, sampled over and over."""
    generator = torch.Generator().manual_seed(0)
    population = torch.randn(100, 1, generator=generator) + 2 * torch.randn(100, 50, generator=generator)
    size = rows // of_each
    values, errors = [], []
    for _ in range(300):
        who = torch.randperm(100, generator=generator)[:size]
        partners = torch.rand(size, 50, generator=generator).argsort(1)[:, :of_each]
        scores = population[who].gather(1, partners).flatten()
        shares = {"seen": size / 100, "partners": of_each / 50}
        design = {name: torch.tensor(share) for name, share in shares.items()}
        design["example"] = torch.arange(size).repeat_interleave(of_each)
        found = mean_over_rows(scores, design)
        values.append(float(found))
        errors.append(found.standard_error)
    scatter = statistics.stdev(values)
    assert 0.95 * scatter <= statistics.fmean(errors) <= 1.4 * scatter
    assert statistics.fmean(values) == pytest.approx(float(population.mean()), abs=4 * scatter / 300**0.5)


@cache
def small_convolutions() -> TrainedNetwork:
    return study.trained(2, 300)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sigma", {"magnitude_aware": False}),
        ("sigma", {"magnitude_aware": True}),
        ("weight_noise", {"kind": "tensor"}),
        ("weight_noise", {"kind": "magnitude"}),
        ("weight_noise", {"kind": "isotropic"}),
        ("batch_gradients", {}),
        ("scores", {}),
        ("input_gradients", {}),
    ],
)
def test_parts_are_the_same_in_micro_batches(name, options) -> None:
    network, passes = small_convolutions(), []
    handle = network.model[0].register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    few = {"_LOOK_DRAWS": 3, "_LEAST": 3}, {"_DRAWS": 2, "_ISOTROPIC_DRAWS": 2}, {"_BATCHES": 3}
    with ExitStack() as stack:
        for module, values in zip((sigma, noise, gradients), few, strict=True):
            stack.enter_context(patch.multiple(module, **values))
        stack.callback(handle.remove)
        parts = LocalParts(network, 0)
        parts.get("logits")
        whole = parts.get(name, **options)
        stack.enter_context(patch.object(fitting, "_budget", 5 * network.bytes_per_example))
        again = LocalParts(network, 0)
        again.get("logits")
        passes.clear()
        pieces = again.get(name, **options)
    if name != "sigma":  # which passes the folded network
        assert max(passes) == 4
    assert set(pieces) == set(whole)
    for key, values in whole.items():
        scale = float(values.double().abs().max())
        torch.testing.assert_close(pieces[key], values, rtol=1e-5, atol=1e-5 * scale)


def test_the_regression_estimator_is_exact_on_a_line_and_its_error_that_of_many_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    known = torch.rand(2000, generator=generator).double().pow(3)
    line = 2 + 3 * known
    some = slice(0, 16)
    exact = mean_by(line[some], known[some], float(known.mean()))
    assert exact == pytest.approx(float(line.mean()), rel=1e-12)
    assert exact.standard_error == pytest.approx(0, abs=1e-9)
    noisy = line + 0.3 * torch.randn(2000, generator=generator).double()
    values, errors = [], []
    for _ in range(300):
        rows = torch.randperm(2000, generator=generator)[:16]
        found = mean_by(noisy[rows], known[rows], float(known.mean()))
        values.append(float(found))
        errors.append(found.standard_error)
    scatter = statistics.stdev(values)
    assert scatter < 0.5 * float(noisy.std()) / 4  # of the plain mean
    assert 0.9 * scatter <= statistics.fmean(errors) <= 1.5 * scatter
    assert statistics.fmean(values) == pytest.approx(float(noisy.mean()), abs=4 * scatter / 300**0.5)


def test_a_table_of_examples_drawn_by_size_has_the_error_of_many_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.rand(400, generator=generator).double().pow(4) + 0.02
    table = sizes * (1 + 0.3 * torch.randn(20, 400, generator=generator).double())
    table *= 1 + 0.3 * torch.randn(400, generator=generator).double()
    true = float(table.mean())

    def mean(some, weights) -> float:
        return float((some @ weights).mean())

    values, errors = [], []
    for _ in range(100):
        rows, chances = drawn_by_size(sizes, 64, generator)
        found = resampled(table[:, rows], mean, chances, 400)
        values.append(float(found))
        errors.append(found.standard_error)
    over_draws = float(table.mean(1).std()) / math.sqrt(20)
    scatter = math.hypot(statistics.stdev(values), over_draws)
    assert statistics.fmean(values) == pytest.approx(true, abs=4 * scatter / 10)
    assert 0.9 * scatter <= statistics.fmean(errors) <= 1.6 * scatter
    everything = resampled(table, mean, torch.ones(400), 400)
    assert float(everything) == pytest.approx(true)
    assert everything.standard_error == pytest.approx(over_draws, rel=0.5)


def test_a_large_networks_information_error_is_taken_from_some_coordinates() -> None:
    network = study.trained(0, 400)
    whole = LocalParts(network, 0).get("information")
    with patch.object(information, "_GROUP_FLOATS", 8_000):
        some = LocalParts(network, 0).get("information")
    assert some["ratio"] == whole["ratio"]
    full, part = (jackknife(one["left_out"][:, 0]) for one in (whole, some))
    assert part == pytest.approx(full, rel=0.5)


def test_traces_of_single_examples_sum_up_to_the_gauss_newton_matrix() -> None:
    """Of a linear network: p(1 − p) summed over classes, times |(x, 1)|²."""
    torch.manual_seed(0)
    model, inputs, labels = nn.Linear(5, 3), torch.randn(30, 5), torch.arange(30) % 3
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    p = model(inputs).softmax(1).detach()
    expected = (p * (1 - p)).sum(1) * (inputs.square().sum(1) + 1)
    found = subject.information()["traces"]
    torch.testing.assert_close(found.sort().values, expected.double().sort().values, rtol=1e-4, atol=1e-6)


def test_a_step_uphill_is_not_lost_beside_huge_weights() -> None:
    """A bias of 1e9 on both logits changes nothing: the loss rises as it does without."""
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    labels = (inputs[:, 0] > 0).long()
    rises = []
    for shift in (0.0, 1e9):
        model = nn.Linear(4, 2).double()
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]))
            model.bias.fill_(shift)
        subject = genbench.Subject.from_module(model.float(), data=(inputs, labels))
        rises.append(study.MEASURES["sharpness"](subject))
    assert rises[0] > 1e-3
    assert rises[1] == pytest.approx(rises[0], rel=1e-3)
