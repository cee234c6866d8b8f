"""Every measure on networks that break something: a finite number or a reason, no exception."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import nn

import genbench
from genbench.engine.cells import Limits, Status
from genbench.engine.host import ReadingHost
from genbench.engine.messages import Reading
from genbench.engine.value import result_record
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry, find_measure_here, load_registry

INSTALLED = load_registry().measures
ENTRIES = {n: e for n, e in INSTALLED.items() if e.source.kind == "built-in"}

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(64, 3),
    ),
    "one output": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 1)),
    "200 layers": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(36, 6),
        *[part for _ in range(198) for part in (nn.ReLU(), nn.Linear(6, 6))],
        nn.ReLU(), nn.Linear(6, 3),
    ),
}  # fmt: skip


def made(kind: str = "linear", seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[kind]().eval()


def subject(model: nn.Module, kind: str = "linear", m: int = 24) -> genbench.Subject:
    inputs = torch.randn(m, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(m) % (1 if kind == "one output" else 3)
    return genbench.Subject.from_module(model, initial=made(kind, seed=1), data=(inputs, labels))


def layers(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]


def scaled(kind: str, factor: float) -> genbench.Subject:
    model = made(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return subject(model, kind)


def dead(kind: str) -> genbench.Subject:
    """A layer of zeros: nothing gets through."""
    model = made(kind)
    nn.init.zeros_(layers(model)[1].weight)
    nn.init.zeros_(layers(model)[1].bias)
    return subject(model, kind)


def silenced() -> genbench.Subject:
    """Units that no input switches on."""
    model = made()
    nn.init.constant_(layers(model)[0].bias, -1e6)
    return subject(model)


DEGENERATE: dict[str, Callable[[], genbench.Subject]] = {
    "weights × 1e15": lambda: scaled("linear", 1e15),
    "weights × 1e15, with batch norm": lambda: scaled("convolution", 1e15),
    "weights × 1e9": lambda: scaled("linear", 1e9),
    "weights × 1e-30": lambda: scaled("linear", 1e-30),
    "m = 1": lambda: subject(made(), m=1),
    "m = 2, with batch norm": lambda: subject(made("convolution"), "convolution", m=2),
    "one output": lambda: subject(made("one output"), "one output"),
    "a dead layer": lambda: dead("linear"),
    "a dead convolution": lambda: dead("convolution"),
    "dead units": silenced,
    "200 layers": lambda: subject(made("200 layers"), "200 layers", m=8),
}


def reasons(found: genbench.Subject, entries: Mapping[str, Entry[Measure]]) -> dict[str, str]:
    """Of the measures that do not apply; the others give a finite number."""
    refused = {}
    for name, entry in entries.items():
        try:
            value = entry.item(found.fresh())
        except genbench.NotApplicable as refusal:
            refused[name] = str(refusal)
            continue
        json.dumps(result_record(value), allow_nan=False)  # refuses NaN and inf in what stands beside it too
    assert all(len(reason) > 10 for reason in refused.values())
    return refused


@pytest.mark.parametrize("kind", DEGENERATE)
def test_every_measure_gives_a_finite_number_or_a_reason(kind) -> None:
    assert len(reasons(DEGENERATE[kind](), ENTRIES)) < len(ENTRIES) - 10


@pytest.mark.xdist_group("test_weightwatcher")  # whose worker has imported WeightWatcher, which takes seconds
def test_measures_of_plugins_do_too() -> None:
    plugins = {name: find_measure_here(name)[0] for name in INSTALLED if name not in ENTRIES}
    assert {"example", "ww_alpha", "ww_alpha_weighted", "ww_log_spectral_norm"} <= set(plugins)
    for make in DEGENERATE.values():
        assert "example" not in reasons(make(), plugins)


def test_what_overflows_is_refused_by_what_needs_it_and_by_nothing_else() -> None:
    found = DEGENERATE["weights × 1e15, with batch norm"]()
    for name in ("ece", "pacbayes_flatness", "gi_inter_l0", "hessian_trace", "waic"):
        with pytest.raises(genbench.NotApplicable, match="outputs are not finite"):
            ENTRIES[name].item(found.fresh())
    assert ENTRIES["param_norm"].item(found.fresh()) > 1e14


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_weights_that_are_not_finite_are_refused_once_for_all_measures(value, kind, tmp_path) -> None:
    sound = subject(made(kind), kind)
    spoilt = copy.deepcopy(made(kind))
    if kind == "linear":
        layers(spoilt)[0].weight.data[0, 0] = value
    else:
        spoilt[1].running_var[0] = value
    with pytest.raises(genbench.NotApplicable, match=r"^the weights are not finite$"):
        subject(spoilt, kind)
    # A run loads the network first and makes a subject of it for every reading.
    host = ReadingHost(tmp_path, replace(sound._network, final=spoilt))
    names = ["baseline_constant", "params", "pacbayes_flatness", "gi_intra_l0"]
    readings = [Reading(name, name, 0) for name in names]
    outcomes = dict(host.read(ENTRIES["params"].source, readings, Limits(60, 2**31)))
    assert {name: (one.status, one.reason) for name, one in outcomes.items()} == dict.fromkeys(
        names, (Status.NOT_APPLICABLE, "the weights are not finite")
    )


def test_initial_weights_that_are_not_finite_are_refused_by_what_needs_them() -> None:
    initial = made(seed=1)
    layers(initial)[0].weight.data[0, 0] = math.nan
    inputs, labels = torch.randn(24, 1, 6, 6), torch.arange(24) % 3
    found = genbench.Subject.from_module(made(), initial=initial, data=(inputs, labels))
    for name in ("fro_dist", "dist_spec_init", "frobenius_distance", "compression_bound"):
        with pytest.raises(genbench.NotApplicable, match=r"^the initial weights are not finite$"):
            ENTRIES[name].item(found.fresh())
    assert ENTRIES["param_norm"].item(found.fresh()) > 0
