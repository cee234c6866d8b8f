"""What readings are told to take is what the records of `mini` and `nin-fashion` say they took."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from genbench.errors import NotApplicable
from genbench.plugin.registry import load_registry
from genbench.runs.past import PastReading
from genbench.runs.plan import make_plan
from genbench.runs.reading_costs import parts_of, shared_seconds
from genbench.subject.inputs import Inputs
from genbench.subject.parts import LocalParts, Part, part_label
from genbench.subject.subject import Subject, TrainedNetwork
from genbench.suites import load_suite
from genbench.suites.kind import kind_of
from genbench.suites.plan import TrainingPass

RECORDS = Path(__file__).parent.parent / "leaderboards" / "records"
ALONE = {
    "logits": "cross_entropy",
    'sigma{"magnitude_aware": false}': "pacbayes_orig",
    'sigma{"magnitude_aware": true}': "pacbayes_mag_orig",
    "batch_gradients": "gradient_norm",
    "gradient_noise": "gradient_noise_scale",
    "scores": "fisher_rao_norm",
    "input_gradients": "input_gradient_norm",
    "information": "tic_bias",
    "curvature": "hessian_trace",
    'weight_noise{"kind": "isotropic"}': "pac_bayes_bound",
    'weight_noise{"kind": "tensor"}': "waic_bias",
    'weight_noise{"kind": "magnitude"}': "sharpness_magflat",
    'response_curve{"layer": 0, "pairs": "intra"}': "gi_intra_l0",
    'response_curve{"layer": 0, "pairs": "inter"}': "gi_inter_l0",
    'response_curve{"layer": 1, "pairs": "intra"}': "gi_intra_l1",
    'response_curve{"layer": 1, "pairs": "inter"}': "gi_inter_l1",
    "midpoints": "mixup_intra_l0",
    'transformed_curve{"sweep": "folded", "transformation": "rotation"}': "gi_rotation_l0",
    'transformed_curve{"sweep": "folded", "transformation": "horizontal"}': "gi_horizontal_l0",
    'transformed_curve{"sweep": "folded", "transformation": "vertical"}': "gi_vertical_l0",
    'transformed_curve{"sweep": "folded", "transformation": "colour"}': "gi_colour_l0",
    "log_evidence": "ml_pacbayes",
    "log_paths": "path_norm",
    'log_paths{"normalised": false}': "path_norm_unnormalised",
    'spectral_norms{"grid": "image", "of": "final"}': "log_prod_of_spec",
    'spectral_norms{"grid": "image", "of": "change"}': "dist_spec_init",
    "flat_spectral_norms": "spec_sum",
    "own: codes": "compression_bound",
    "own: singular values": "ww_alpha",
}
"""Part to a measure whose record says what the part took on all networks, and nothing else."""
MATTERS = 0.01
"""Of all parts' seconds on a suite: what is less is no part's business."""


@cache
def recorded(suite: str) -> dict[str, float]:
    """Part to the seconds of all networks of a suite, as far as there are records."""
    costs = {part: cost(suite, name) for part, name in ALONE.items()}
    found = {
        part: one["seconds"] if part == "own: codes" else one["shared_seconds"]
        for part, one in costs.items()
        if one
    }
    if "curvature" in found:
        found["curvature"] -= found["information"]  # which it asks for first
    return found


def cost(suite: str, measure: str) -> dict[str, float] | None:
    file = RECORDS / suite / f"{measure}.json"
    return json.loads(file.read_text())["cost"] if file.is_file() else None


@cache
def units(suite: str) -> list[TrainingPass]:
    """Of all networks, as `genbench run` is told them where the evidence comes from a pack."""
    loaded = load_suite(suite)
    networks = make_plan(loaded, []).evidence.networks
    return [kind_of(loaded).training_pass(loaded, network) for network in networks]


def told(suite: str, parts: Iterable[str]) -> float:
    needed = {"a measure": frozenset(parts)}
    return sum(shared_seconds(needed, unit, {}) for unit in units(suite))


@pytest.mark.parametrize("suite", ["mini", "nin-fashion"])
def test_readings_of_all_measures_take_what_they_are_told_to(suite: str) -> None:
    true = sum(recorded(suite).values())
    assert true / 1.5 <= told(suite, recorded(suite)) <= 1.5 * true


@pytest.mark.parametrize("suite", ["mini", "nin-fashion"])
def test_every_part_takes_what_it_is_told_to(suite: str) -> None:
    """Within a factor of two, where it matters."""
    true = recorded(suite)
    least = MATTERS * sum(true.values())
    ratios = {part: told(suite, [part]) / seconds for part, seconds in true.items() if seconds > least}
    assert len(ratios) >= 5
    assert {part: ratio for part, ratio in ratios.items() if not 0.5 <= ratio <= 2} == {}


class Asked(LocalParts):
    """Says which parts each part needed, itself among them."""

    def __init__(self, network: TrainedNetwork) -> None:
        super().__init__(network, 0)
        self.needs: dict[str, set[str]] = {}
        self._asking: list[set[str]] = []

    def get(self, name: str, **options: Any) -> Part:
        label = part_label(name, options)
        self._asking.append(self.needs.setdefault(label, {label}))
        try:
            return super().get(name, **options)
        finally:
            asked = self._asking.pop()
            if self._asking:
                self._asking[-1] |= asked


def test_measures_take_the_parts_that_they_are_told_to() -> None:
    """All of genbench's own, on a network that is so small that they take seconds."""
    torch.manual_seed(0)

    def make() -> nn.Module:
        layers = (nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
        return nn.Sequential(*layers).eval()

    images, labels = torch.rand(12, 3, 6, 6), torch.arange(12) % 2
    network = TrainedNetwork("tiny", make(), make(), Inputs(images), labels, 2)
    parts, wrong, known = Asked(network), {}, set()
    for name, entry in load_registry().measures.items():
        if entry.source.kind != "built-in":
            continue
        source = Recorded(parts)
        with suppress(NotApplicable):
            entry.item(Subject(network, source, seed=0))
        used = {label for label in source.used if label != "margins"}
        said = {part for part in parts_of(entry.item) if not part.startswith("own: ")}
        known |= said
        if used != said:
            wrong[name] = (used, said)
    assert wrong == {}
    assert known == {part for part in ALONE if not part.startswith("own: ")}


class Recorded:
    """Parts for one reading: what it asks for, and what that asks for."""

    def __init__(self, parts: Asked) -> None:
        self._parts = parts
        self.used: set[str] = set()

    def get(self, name: str, **options: Any) -> Part:
        try:
            return self._parts.get(name, **options)
        finally:
            self.used |= self._parts.needs[part_label(name, options)]


def test_past_readings_correct_their_parts_and_no_others() -> None:
    unit = TrainingPass(1.0, 1000)
    needed = {"a": frozenset({"logits"}), "b": frozenset({"logits", "information"})}
    plain = shared_seconds(needed, unit, {})
    logits = shared_seconds({"a": needed["a"]}, unit, {})
    past = {"a": PastReading(0.0, 10 * logits, 0)}
    assert shared_seconds(needed, unit, past) == pytest.approx(plain + 9 * logits)
    # Of a reading that shared both, each is given its share.
    past = {"b": PastReading(0.0, 3 * plain, 0)}
    assert shared_seconds(needed, unit, past) == pytest.approx(3 * plain)
    # What is known of a measure that nobody knows the parts of counts once.
    assert shared_seconds({"c": frozenset()}, unit, {"c": PastReading(0.0, 5.0, 0)}) == 5.0
