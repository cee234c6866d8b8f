"""The audit against the pack that ships: its controls, and drift, on the networks that everyone has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_audit import read

from genbench.audit.manifest import AuditManifest
from genbench.audit.plan import PACK, AuditNetwork, AuditPlan, plan_audit, shipped_pack
from genbench.audit.setups import STRESSORS
from genbench.audit.verdicts import StressorVerdict, judge
from genbench.packs.pack import MANIFEST

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PACK / MANIFEST).is_file(), reason="no pack: genbench audit --write-pack genbench/audit/pack"
    ),
]


def shipped(stressors: Sequence[str], chosen: Callable[[AuditNetwork], bool] = lambda one: True) -> AuditPlan:
    """The audit of the pack, on those of its networks that are chosen."""
    pack = shipped_pack()
    assert pack is not None, (
        "the pack is one of other set-ups: genbench audit --write-pack genbench/audit/pack"
    )
    plan = plan_audit(stressors, pack)
    stacks = [replace(one, networks=[n for n in one.networks if chosen(n)]) for one in plan.stacks]
    return replace(plan, stacks=[one for one in stacks if one.networks])


def test_the_pack_is_small_and_whole() -> None:
    assert sum(file.stat().st_size for file in PACK.iterdir()) <= 10 * 2**20
    pack = shipped_pack()
    assert pack is not None
    for entry in pack.read_as(AuditManifest).stacks.values():
        pack.check(entry.trained.files)


@pytest.fixture(scope="module")
def controls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, StressorVerdict]]:
    found, _ = read(shipped(list(STRESSORS)), tmp_path_factory.mktemp("audit"), ["params", "baseline_random"])
    return {
        name: {stressor: judge(one.observed, stressor) for stressor in STRESSORS}
        for name, one in found.items()
    }


def test_a_count_of_parameters_never_comes_out_fragile(
    controls: dict[str, dict[str, StressorVerdict]],
) -> None:
    found = controls["params"]
    assert {name: one.verdict for name, one in found.items()} == {
        **dict.fromkeys(STRESSORS, "robust"), **dict.fromkeys(("labels", "tasks", "pixels"), "blind")
    }  # fmt: skip
    slopes = [value for name, value in found["slope"].numbers.items() if name.endswith("0.01: slope")]
    assert slopes == pytest.approx([-0.5] * 4, abs=1e-9)
    levels = [value for name, value in found["slope"].numbers.items() if "fcn, " in name and "level" in name]
    assert max(levels) - min(levels) == pytest.approx(0, abs=1e-9)
    assert found["spread"].number == 0


def test_random_numbers_are_fragile(controls: dict[str, dict[str, StressorVerdict]]) -> None:
    verdicts = [controls["baseline_random"][name].verdict for name in list(STRESSORS)[:7]]
    assert verdicts.count("fragile") >= 6, verdicts


def test_drift(tmp_path: Path) -> None:
    """Path norms climb after interpolation under every recipe; raw weights much faster with Adam."""
    late = shipped(["drift"], lambda n: n.settings["kept"] in ("T_int", 43, 69, 110, 176, 240, 10, 17, 27))
    found, _ = read(late, tmp_path, ["path_norm", "magnitude"])
    path, size = (judge(found[name].observed, "drift") for name in ("path_norm", "magnitude"))
    assert len(path.numbers) == 6
    assert min(path.numbers.values()) > 0.1
    assert size.numbers["fcn batch norm, adam 0.01: s"] > 2 * size.numbers["fcn batch norm, sgd 0.01: s"]


def test_the_evidence_of_random_networks_sees_no_training(tmp_path: Path) -> None:
    """`ml_pacbayes` is the same to the bit over recipes, and over epochs."""
    recipes = shipped(
        ["slope"], lambda n: n.label.startswith("slope: net fcn, n 75,") and n.settings["seed"] == 0
    )
    assert len(recipes.networks) == 3
    epochs = shipped(
        ["drift"],
        lambda n: (
            n.settings["kept"] in (1, 240)
            and n.label.startswith("drift: net fcn, optimizer sgd")
            and n.settings["seed"] == 0
        ),
    )
    assert len(epochs.networks) == 2
    for plan in (recipes, epochs):
        found, _ = read(plan, tmp_path / "store", ["ml_pacbayes"])
        values = {reading.value for reading in found["ml_pacbayes"].observed.readings.values()}
        assert len(values) == 1
        assert None not in values
