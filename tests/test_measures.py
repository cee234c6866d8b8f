"""Measures against values of the released code of paper 001's authors, and against closed forms."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import genbench
from genbench.plugin.registry import load_registry
from genbench.population.networks import NetworkInNetwork

GOLDEN = Path(__file__).parent / "golden" / "measures"

EXACT, FOLDED = 5e-6, 1e-3
"""Tolerances of the golden README; genbench folds batch norm away exactly, which moves path norms and
margins by up to 5e-4."""

AGREES = {
    "params": ("PARAMS", EXACT),
    "inverse_margin": ("INVERSE_MARGIN", FOLDED),
    "log_spec_init_main": ("LOG_SPEC_INIT_MAIN_FFT", FOLDED),
    "log_spec_orig_main": ("LOG_SPEC_ORIG_MAIN_FFT", FOLDED),
    "log_prod_of_spec_over_margin": ("LOG_PROD_OF_SPEC_OVER_MARGIN_FFT", FOLDED),
    "log_prod_of_spec": ("LOG_PROD_OF_SPEC_FFT", EXACT),
    "fro_over_spec": ("FRO_OVER_SPEC_FFT", EXACT),
    "log_sum_of_spec_over_margin": ("LOG_SUM_OF_SPEC_OVER_MARGIN_FFT", FOLDED),
    "log_sum_of_spec": ("LOG_SUM_OF_SPEC_FFT", EXACT),
    "log_prod_of_fro_over_margin": ("LOG_PROD_OF_FRO_OVER_MARGIN", FOLDED),
    "log_prod_of_fro": ("LOG_PROD_OF_FRO", EXACT),
    "log_sum_of_fro_over_margin": ("LOG_SUM_OF_FRO_OVER_MARGIN", FOLDED),
    "log_sum_of_fro": ("LOG_SUM_OF_FRO", EXACT),
    "fro_dist": ("FRO_DIST", EXACT),
    "dist_spec_init": ("DIST_SPEC_INIT_FFT", EXACT),
    "param_norm": ("PARAM_NORM", EXACT),
    "path_norm_over_margin": ("PATH_NORM_OVER_MARGIN", FOLDED),
    "path_norm": ("PATH_NORM", FOLDED),
}

WITH_SIGMA = [
    "pacbayes_init", "pacbayes_orig", "pacbayes_flatness",
    "pacbayes_mag_init", "pacbayes_mag_orig", "pacbayes_mag_flatness",
]  # fmt: skip


def value(name: str, subject: genbench.Subject) -> float:
    return load_registry().measures[name].item(subject.fresh())


@cache
def golden_network(net: str) -> tuple[genbench.Subject, dict]:
    folder = GOLDEN / net
    config = json.loads((folder / "config.json").read_text())
    golden = json.loads((folder / "golden.json").read_text())
    data = np.load(folder / "data.npz")
    models = []
    for file in ("final", "init"):
        weights = load_file(folder / f"{file}.safetensors")
        width = weights["conv.weight"].shape[1]
        depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
        model = NetworkInNetwork(depth, width, channels=3, classes=10)
        model.load_state_dict(weights, strict=False)
        missing = {key for key in model.state_dict() if key not in weights}
        assert all("num_batches_tracked" in key for key in missing), (config, missing)
        models.append(model)
    subject = genbench.Subject.from_module(
        models[0], initial=models[1], data=(torch.from_numpy(data["x"]), torch.from_numpy(data["y"]))
    )
    return subject, golden


@pytest.mark.parametrize("net", ["net_a", "net_b"])
@pytest.mark.parametrize("name", AGREES)
def test_agrees_with_the_authors_code(net, name) -> None:
    subject, golden = golden_network(net)
    their_name, tolerance = AGREES[name]
    expected = golden["values"][their_name]
    if name.startswith("log_"):
        assert value(name, subject) == pytest.approx(expected, abs=tolerance)
    else:
        assert value(name, subject) == pytest.approx(expected, rel=tolerance)


class GoldenSigma:
    """Shared parts as they are, but for the sigma that the authors' search ended with."""

    def __init__(self, parts, golden: dict) -> None:
        self._parts, self._golden = parts, golden

    def get(self, name: str, **options):
        if name != "sigma":
            return self._parts.get(name, **options)
        sigma = self._golden["mag_sigma" if options["magnitude_aware"] else "sigma"]
        return {"sigma": torch.tensor(sigma, dtype=torch.float64), "error": torch.tensor(0.0)}


@pytest.mark.parametrize("net", ["net_a", "net_b"])
@pytest.mark.parametrize("name", WITH_SIGMA)
def test_pac_bayes_formulas_agree_given_the_authors_sigma(net, name) -> None:
    subject, golden = golden_network(net)
    given = genbench.Subject(subject._network, GoldenSigma(subject._parts, golden))
    assert value(name, given) == pytest.approx(golden["values"][name.upper()], rel=2e-6)


@pytest.mark.parametrize("net", ["net_a", "net_b"])
def test_sigma_is_about_the_square_of_the_authors(net) -> None:
    """They pass s² for a standard deviation, and their noise also hits the reset batch norms."""
    subject, golden = golden_network(net)
    theirs = golden["sigma_seeds_0_to_19"]["sigma"]["mean"]
    views = [
        genbench.Subject(subject._network, type(subject._parts)(subject._network, seed)) for seed in range(5)
    ]
    ours = np.mean([view.sigma() for view in views])
    assert ours == pytest.approx(theirs**2, rel=0.25)


def test_all_twenty_four_of_paper_001_are_there() -> None:
    assert len(AGREES) + len(WITH_SIGMA) == 24
    equations = {
        entry.item.paper for entry in load_registry().measures.values() if entry.item.paper.startswith("001")
    }
    assert equations == {f"001 ({number})" for number in range(10, 34)}


def two_layer() -> tuple[genbench.Subject, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs = torch.randn(25, 3)
    subject = genbench.Subject.from_module(model, data=(inputs, torch.arange(25) % 2))
    return subject, [p.detach().double() for p in model.parameters()]


def test_path_norm_by_enumerating_every_path() -> None:
    subject, (w1, b1, w2, b2) = two_layer()
    total = 0.0
    for out in range(2):
        for hidden in range(4):
            for source in range(3):
                total += (w1[hidden, source] * w2[out, hidden]).item() ** 2
            total += (b1[hidden] * w2[out, hidden]).item() ** 2
        total += b2[out].item() ** 2
    assert value("path_norm", subject) == pytest.approx(math.sqrt(total / 25), rel=1e-9)


def test_norms_in_numpy() -> None:
    subject, (w1, _, w2, _) = two_layer()
    squares = [np.square(w.numpy()).sum() for w in (w1, w2)]
    assert value("param_norm", subject) == pytest.approx(math.sqrt(sum(squares) / 25))
    assert value("params", subject) == pytest.approx(math.sqrt(20 / 25))
    assert value("log_prod_of_fro", subject) == pytest.approx(0.5 * (np.log(squares).sum() - math.log(25)))
    largest = [np.linalg.svd(w.numpy(), compute_uv=False)[0] for w in (w1, w2)]
    assert value("log_prod_of_spec", subject) == pytest.approx(
        0.5 * (2 * np.log(largest).sum() - math.log(25))
    )


def test_measures_that_need_the_initial_weights_say_so() -> None:
    subject, _ = two_layer()
    with pytest.raises(genbench.NotApplicable, match="initial weights"):
        value("fro_dist", subject)


def test_path_norm_refuses_what_is_not_a_relu_network() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    subject = genbench.Subject.from_module(model, data=(torch.randn(20, 3), torch.zeros(20)))
    with pytest.raises(genbench.NotApplicable, match="Tanh"):
        value("path_norm", subject)


def test_baselines() -> None:
    subject, _ = two_layer()
    assert value("baseline_constant", subject) == 1.0
    assert value("baseline_size", subject) == 3 * 4 + 4 + 4 * 2 + 2
    measure = load_registry().measures["baseline_random"].item
    draws = [measure(subject.fresh(seed=seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
