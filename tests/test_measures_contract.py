"""What all built-in measures have in common: the SPEC's list, the contract, invariances, documentation."""

from __future__ import annotations

import json
import math
import random
from functools import cache

import numpy as np
import pytest
import torch

import genbench
from genbench.conformance.networks import DEGENERATE, SAME_FUNCTION, convolutional
from genbench.engine.value import result_record
from genbench.plugin.contract import Estimate
from genbench.plugin.registry import load_registry

BUILT_IN = {n: e.item for n, e in load_registry().measures.items() if e.source.kind == "built-in"}

NEVER_HERE = {"gradient_noise_var", "gi_colour_l0"}
"""Need what only training can record, and images with colours; tested with a trace or images of their own."""

OF_THE_SPEC = """
params inverse_margin log_spec_init_main log_spec_orig_main log_prod_of_spec_over_margin log_prod_of_spec
fro_over_spec log_sum_of_spec_over_margin log_sum_of_spec log_prod_of_fro_over_margin log_prod_of_fro
log_sum_of_fro_over_margin log_sum_of_fro fro_dist dist_spec_init param_norm path_norm_over_margin path_norm
pacbayes_init pacbayes_orig pacbayes_flatness pacbayes_mag_init pacbayes_mag_orig pacbayes_mag_flatness

vcdim param_count magnitude cross_entropy negative_entropy inverse_margin_p10 l2_over_margin_p10
margin_normalized_param_norm l1_over_margin_p10 spectral_norm_per_layer spec_sum spec_prod frobenius_distance
fisher_rao_norm sharpness adaptive_sharpness sharpness_magnitude sharpness_magnitude_init sharpness_magflat
pac_bayes_bound pac_bayes_magnitude pac_bayes_magnitude_init pac_bayes_magflat flatness_proxy
hessian_top_eigenvalue hessian_trace gradient_noise_var gradient_noise_final_var gradient_noise_scale
gradient_norm input_gradient_norm aic aic_bias tic tic_bias tic_bias_bound waic waic_bias ece mce ace
reliability_diagram temperature_scaling

gi_intra_l0 gi_intra_l1 gi_inter_l0 gi_inter_l1 pal_intra_l0 pal_intra_l1 pal_inter_l0 pal_inter_l1
mixup_intra_l0 dbi_mixup gi_rotation_l0 gi_horizontal_l0 gi_vertical_l0 gi_colour_l0

ml_pacbayes path_norm_unnormalised compression_bound baseline_random baseline_constant baseline_size
"""


def test_every_measure_of_the_spec_is_there_and_no_other() -> None:
    assert set(BUILT_IN) == set(OF_THE_SPEC.split())


def test_where_higher_means_better() -> None:
    better = {name for name, item in BUILT_IN.items() if item.higher_means == "better"}
    assert better == {"mixup_intra_l0", *(f"pal_{p}_l{n}" for p in ("intra", "inter") for n in (0, 1))}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_measure_documents_itself(name) -> None:
    item = BUILT_IN[name]
    assert item.cost in ("low", "medium", "high")
    assert len(item.summary) <= 100
    if not name.startswith("baseline_"):
        assert item.paper
        assert len(item.description.splitlines()) > 2, "the formula is missing"


def read(name: str, subject: genbench.Subject) -> Estimate | str:
    """The reading, checked to be finite, or why there is none."""
    try:
        found = BUILT_IN[name](subject)
    except genbench.NotApplicable as refusal:
        return str(refusal)
    record = result_record(found)
    json.dumps(record, allow_nan=False)
    return found if isinstance(found, Estimate) else Estimate(found)


@cache
def readings(batch_size: int = 256) -> dict[str, Estimate | str]:
    """All measures on one network, which share its parts."""
    subject = convolutional(batch_size=batch_size)
    return {name: read(name, subject.fresh()) for name in BUILT_IN}


def test_an_ordinary_network_has_every_reading() -> None:
    assert {name for name, found in readings().items() if isinstance(found, str)} == NEVER_HERE


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - NEVER_HERE))
def test_needs_are_declared(name) -> None:
    subject = _shared().fresh()
    read(name, subject)
    assert subject.used <= BUILT_IN[name].needs


@cache
def _shared() -> genbench.Subject:
    return convolutional()


def test_readings_repeat_and_do_not_depend_on_the_order_in_which_measures_are_read() -> None:
    subject = convolutional()
    again = {name: read(name, subject.fresh()) for name in reversed(BUILT_IN)}
    assert {name: str(value) for name, value in again.items()} == {n: str(v) for n, v in readings().items()}


def test_the_batch_size_changes_nothing() -> None:
    for name, other in readings(batch_size=7).items():
        found = readings()[name]
        assert isinstance(found, str) or found == pytest.approx(other, rel=1e-5), name


def test_global_generators_and_settings_stay_as_they_are() -> None:
    def state() -> tuple[object, ...]:
        return (
            torch.get_rng_state().numpy().tobytes(),
            repr(np.random.get_state()),
            random.getstate(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
        )

    subject = convolutional()
    before = state()
    for name in BUILT_IN:
        read(name, subject.fresh())
    assert state() == before


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_networks_have_finite_readings_or_reasons(kind) -> None:
    subject = DEGENERATE[kind]()
    for name in BUILT_IN:
        found = read(name, subject.fresh())
        assert not isinstance(found, str) or len(found) > 10, name


LOOSE = dict.fromkeys([name for name in BUILT_IN if name.startswith("pacbayes_")], 0.35)
"""A search with ten draws a step, which land on other weights when units are permuted."""


def test_permuting_hidden_units_changes_no_measure() -> None:
    original, permuted = SAME_FUNCTION["hidden units permuted"]()
    for name, item in BUILT_IN.items():
        first, second = read(name, original.fresh()), read(name, permuted.fresh())
        if isinstance(first, str) or isinstance(second, str):
            assert name in NEVER_HERE, (name, first, second)
            continue
        errors = [value.standard_error or 0.0 for value in (first, second)]
        slack = 5 * math.hypot(*errors) if item.randomness == "seeded" else 0.0
        assert first == pytest.approx(second, rel=LOOSE.get(name, 1e-4), abs=slack + 1e-12), name


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("consecutive layers rescaled by 8 and 1/8", ["path_norm", "path_norm_over_margin"]),
        ("weights before batch norm scaled by 8", ["path_norm", "params", "param_norm", "log_prod_of_spec"]),
        ("four dead units added", ["path_norm", "param_norm", "log_prod_of_spec", "log_prod_of_fro"]),
        ("consecutive layers rescaled by 8 and 1/8", ["ece", "cross_entropy", "gi_intra_l0", "ml_pacbayes"]),
    ],
)
def test_what_leaves_the_function_as_it_was_leaves_these(change, names) -> None:
    original, changed = SAME_FUNCTION[change]()
    for name in names:
        assert read(name, changed.fresh()) == pytest.approx(read(name, original.fresh()), rel=1e-5), name


def test_rescaling_shows_in_the_measures_that_say_so() -> None:
    original, changed = SAME_FUNCTION["consecutive layers rescaled by 8 and 1/8"]()
    for name in ("magnitude", "l2_over_margin_p10", "sharpness", "hessian_top_eigenvalue"):
        assert abs(read(name, changed.fresh()) / read(name, original.fresh()) - 1) > 0.2, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tic", "gi_intra_l1"])  # and path_norm, in test_authoring.py
def test_the_conformance_kit_agrees(check_measure, name) -> None:
    """The same promises in processes of their own, threads included; of several kinds of shared part."""
    check_measure(name).assert_passed()


# -- what a reading says beside its value ---------------------------------------------------------------


def test_an_estimate_is_a_float_that_says_more() -> None:
    found = genbench.Estimate(2.0, standard_error=0.5, samples=8, layers={"fc": 1})
    assert found + 1 == 3.0
    assert result_record(found) == {
        "value": 2.0, "detail": {"standard_error": 0.5, "samples": 8, "layers": {"fc": 1.0}},
    }  # fmt: skip
    assert result_record(2.0) == {"value": 2.0}
    assert result_record(genbench.Estimate(1.0, standard_error=math.nan)) == {"value": 1.0}


NETWORK = """
import genbench, torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(60, 12)
    return genbench.Subject.from_module(model, data=(inputs, model(inputs).argmax(1)))
"""


def test_reading_shows_errors_and_layers(run, tmp_path) -> None:
    (tmp_path / "mynet.py").write_text(NETWORK)
    arguments = ["read", "./mynet.py:build", "-m", "log_prod_of_spec", "-m", "gi_inter_l0", "-m", "ece"]
    rows = {row["measure"]: row for row in json.loads(run(*arguments, "--json").stdout)}
    assert list(rows["log_prod_of_spec"]["layers"]) == ["1", "3"]
    assert rows["gi_inter_l0"]["standard_error"] > 0
    assert rows["gi_inter_l0"]["samples"] > 5
    assert rows["ece"]["standard_error"] is None
    text = run(*arguments).stdout
    assert "±" in text
    assert "log_prod_of_spec by layer" in text


def test_the_listing_shows_family_equation_needs_and_cost(run) -> None:
    listing = run("measures").stdout.splitlines()
    assert listing[0].split("\t") == ["name", "category", "paper", "needs", "cost", "summary"]
    row = next(line for line in listing if line.startswith("tic_bias\t"))
    assert row.split("\t")[1:5] == ["information", "002 (43)", "gd", "medium"]
    shown = run("measures", "hessian_trace").stdout
    for words in ("tr(H)", "Limits:", "Nakai et al.", "Eq. 35", "cost: high"):
        assert words in shown
