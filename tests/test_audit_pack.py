"""The audit against the pack that ships: its controls, drift and Exp++, on the networks that everyone has.

Readings of all networks are in the records of the boards, which is where most of these tests find them; that
records are what the code reads is tested on a few networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from test_audit import Made, read

from genbench.audit.manifest import AuditManifest
from genbench.audit.plan import PACK, AuditNetwork, AuditPlan, plan_audit, readings_of, shipped_pack
from genbench.audit.records import audit_evidence, read_audit
from genbench.audit.report import MeasureAudit
from genbench.audit.setups import STRESSORS
from genbench.audit.stacks import load_kept
from genbench.audit.verdicts import StressorVerdict, judge
from genbench.engine.store import Store
from genbench.plugin.registry import load_registry
from genbench.subject.parts import CountedParts, computed_here
from genbench.subject.subject import Subject

READ_HERE = ("params", "baseline_random", "path_norm", "magnitude")
AUDITS = Path(__file__).parent.parent / "leaderboards" / "audits"


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
    assert sum(file.stat().st_size for file in PACK.iterdir()) < 10_000_000
    pack = shipped_pack()
    assert pack is not None
    stacks = pack.read_as(AuditManifest).stacks
    for name in ("slope fcn n=75 sgd", "drift fcn batch norm adam", "exp"):
        pack.check(stacks[name].trained.files)
    assert len(audit_evidence().truths) == 558


# -- from records ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded() -> dict[str, MeasureAudit]:
    evidence = audit_evidence()
    names = (*READ_HERE, "log_prod_of_fro", "inverse_margin", "ml_pacbayes")
    return {name: read_audit(AUDITS / f"{name}.json", evidence) for name in names}


def verdicts(audit: MeasureAudit) -> dict[str, StressorVerdict]:
    return {one.stressor: one for one in audit.verdicts}


def test_a_count_of_parameters_never_comes_out_fragile(recorded: dict[str, MeasureAudit]) -> None:
    found = verdicts(recorded["params"])
    assert {name: one.verdict for name, one in found.items()} == {
        **dict.fromkeys(STRESSORS, "robust"), **dict.fromkeys(("labels", "tasks", "pixels"), "blind")
    }  # fmt: skip
    slopes = [value for name, value in found["slope"].numbers.items() if name.endswith("0.01: slope")]
    assert slopes == pytest.approx([-0.5] * 4, abs=1e-9)
    levels = [value for name, value in found["slope"].numbers.items() if "fcn, " in name and "level" in name]
    assert max(levels) - min(levels) == pytest.approx(0, abs=1e-9)
    assert found["spread"].number == 0


def test_random_numbers_are_fragile(recorded: dict[str, MeasureAudit]) -> None:
    found = verdicts(recorded["baseline_random"])
    said = [found[name].verdict for name in list(STRESSORS)[:7]]
    assert said.count("fragile") >= 6, said


def test_drift(recorded: dict[str, MeasureAudit]) -> None:
    """Path norms climb after interpolation under every recipe; raw weights much faster with Adam."""
    path, size = (verdicts(recorded[name])["drift"] for name in ("path_norm", "magnitude"))
    climbs = [value for name, value in path.numbers.items() if name.endswith(": s")]
    assert len(climbs) == 6
    assert min(climbs) > 0.1
    assert size.numbers["fcn batch norm, adam 0.01: s"] > 2 * size.numbers["fcn batch norm, sgd 0.01: s"]


def test_what_shows_in_small(recorded: dict[str, MeasureAudit]) -> None:
    """Levels and shapes of norms depend on the recipe; margins keep growing after interpolation."""
    slopes = [verdicts(recorded[name])["slope"].verdict for name in ("path_norm", "log_prod_of_fro")]
    assert "fragile" in slopes
    margin = verdicts(recorded["inverse_margin"])["drift"].numbers
    assert max(value for name, value in margin.items() if name.endswith(": s")) < 0


def test_a_bound_of_architecture_and_data_sees_what_matters_and_nothing_else(
    recorded: dict[str, MeasureAudit],
) -> None:
    """000's foil: it falls with more data and grows with label noise; recipes and epochs leave it alone."""
    found = verdicts(recorded["ml_pacbayes"])
    slopes = {name: value for name, value in found["slope"].numbers.items() if name.endswith(": slope")}
    for net in ("fcn", "nin"):
        mine = [value for name, value in slopes.items() if name.startswith(f"{net}, ")]
        assert len(mine) == 3
        assert max(mine) - min(mine) < 1e-12
        assert max(mine) < 0
    drifts = [value for name, value in found["drift"].numbers.items() if name.endswith(": s")]
    assert drifts == pytest.approx([0] * len(drifts), abs=1e-12)
    assert found["labels"].verdict == "robust"
    assert found["exp"].number == 0


def test_records_are_what_is_read(recorded: dict[str, MeasureAudit], tmp_path: Path) -> None:
    """Of each architecture, by the code as it is; a value that is not close is another version's."""
    stressors = ["slope", "pixels", "exp"]
    last = {n.stressor: n.label for n in shipped(stressors).networks}
    plan = shipped(stressors, lambda n: last[n.stressor] == n.label)
    assert [str(n.settings.get("net")) for n in plan.networks] == ["nin", "nin", "None"]
    found, computed = read(plan, tmp_path, READ_HERE)
    assert not any("train " in label or "held-out" in label for label in computed)
    for name, one in found.items():
        for label, reading in one.observed.readings.items():
            known = recorded[name].readings.observed
            assert reading.value == pytest.approx(known.readings[label].value, rel=1e-4), (name, label)
            assert one.observed.truths[label] == known.truths[label]


# -- ml_pacbayes -------------------------------------------------------------------------------------------


def test_what_sees_no_training_is_read_once_for_all_networks_alike() -> None:
    plan = shipped(list(STRESSORS))
    cells = readings_of(plan, load_registry().measures["ml_pacbayes"])
    assert len(cells) == len(plan.networks)
    # 10 of learning curves, among them those of hysteresis and of pixels as they are; drift with batch norm;
    # 5 shares of labels; 14 tasks and sizes; 4 of moved pixels; Exp++; 2 of spread, of which one is a task's.
    assert len({one.key for (one,) in cells.values()}) == 10 + 1 + 5 + 14 + 4 + 1 + 1
    params = readings_of(plan, load_registry().measures["params"])
    assert len({one.key for (one,) in params.values()}) == len(plan.networks)


def test_the_evidence_of_random_networks_sees_no_training(tmp_path: Path) -> None:
    """Read of each by itself, `ml_pacbayes` is the same to the bit over recipes, seeds and epochs."""
    plan = shipped(["slope"], lambda n: n.label.startswith("slope: net fcn, n 75,"))
    read(plan, tmp_path, ["baseline_constant"])
    measure = load_registry().measures["ml_pacbayes"].item
    values = set()
    with Store(tmp_path) as store:
        training = store.folder(plan.training.key)
        for stack in plan.stacks:
            for network in (stack.networks[0], stack.networks[-1]):
                kept = load_kept("one", store.folder(stack.stack.key), training, **network.cells.place)
                parts = CountedParts({}, {}, computed_here(kept, 5, {}, {}))
                values.add(float(measure(Subject(kept, parts, seed=0))))
    assert len(values) == 1


# -- Exp++ -------------------------------------------------------------------------------------------------

GROWTH = 0.8**-100
EXPLODE = ("pacbayes_orig", "magnitude", "param_norm", "path_norm_unnormalised")
STAY = ("path_norm", "ece", "params", "gi_inter_l0", "ml_pacbayes")


@pytest.fixture(scope="module")
def exponential(tmp_path_factory: pytest.TempPathFactory) -> Made:
    plan = shipped(["exp"], lambda n: n.settings["alpha"] in (1.0, 0.8) and n.settings["decay"] == 0)
    store = tmp_path_factory.mktemp("exp")
    names = [*EXPLODE, *STAY, "hessian_top_eigenvalue", "baseline_random"]
    return Made(plan, store, read(plan, store, names)[0])


def test_exp_networks_have_one_function(exponential: Made) -> None:
    first, second = exponential.readings["params"].observed.truths.values()
    assert second.kept.function_change is not None
    assert second.kept.function_change < 1e-8
    assert first.error == second.error
    assert first.predictions == second.predictions


def test_what_explodes_and_what_stays(exponential: Made) -> None:
    """AUDIT.md section 7, in kind."""
    found = {name: judge(one.observed, "exp") for name, one in exponential.readings.items()}
    for name in EXPLODE:
        assert found[name].verdict == "fragile"
        assert found[name].numbers["alpha = 0.8, weight decay 0: R"] > math.log(1e6)
    assert found["hessian_top_eigenvalue"].numbers["alpha = 0.8, weight decay 0: R"] < -math.log(1e6)
    assert {name: found[name].verdict for name in STAY} == dict.fromkeys(STAY, "robust")
    assert found["baseline_random"].verdict == "fragile"


def test_the_norm_is_that_of_the_weights(exponential: Made) -> None:
    """`magnitude` against the stored weights, by hand."""
    states = load_file(exponential.folder("exp") / "final.safetensors")
    trained = [value for name, value in states.items() if name.startswith("hidden")]
    rows = [int(n.cells.place["place"]) for n in exponential.plan.networks]
    norms = [math.sqrt(sum(float(v[row].square().sum()) for v in trained)) for row in rows]
    assert norms[1] / norms[0] == pytest.approx(GROWTH, rel=1e-6)
    readings = exponential.readings["magnitude"].observed.readings.values()
    assert [r.value for r in readings] == pytest.approx(norms, rel=1e-5)
