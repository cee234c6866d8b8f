"""The audit from end to end: networks kept, continued, under Exp++, in a pack; readings and verdicts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from conftest import Run
from msgspec import structs
from safetensors.torch import load_file
from torch import nn

from genbench.audit.execute import MeasureReadings, finish, observe
from genbench.audit.exponential import train_exponential
from genbench.audit.images import heldout_set, pixel_order, training_set
from genbench.audit.manifest import AuditManifest
from genbench.audit.networks import make_audit_network
from genbench.audit.packing import compare_audit, write_audit_pack
from genbench.audit.plan import AuditPlan, plan_audit
from genbench.audit.setups import StackSetup, quick_setups, small, stacks_of
from genbench.audit.stacks import kept_model
from genbench.audit.step_types import AuditImages, AuditShape, ExponentialInputs, StackResult
from genbench.engine.cells import Cell, Limits, Outcome
from genbench.engine.scheduler import provenance
from genbench.engine.steps import read_result
from genbench.engine.store import Store
from genbench.packs.pack import read_pack
from genbench.plugin.registry import load_registry
from genbench.population.pools import standardised
from genbench.population.stacked import StackedNetworks

HOW = {"jobs": 1, "limits": Limits(600, 2**32)}


@dataclass
class Counted:
    """Progress that remembers what was computed."""

    computed: list[str] = field(default_factory=list)

    def begin(self, stored: list[Cell], pending: list[Cell]) -> None: ...

    def started(self, cell: Cell, node: str) -> None: ...

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        self.computed.append(cell.label)

    def note(self, text: str) -> None:
        raise AssertionError(text)


def read(plan: AuditPlan, store: Path, names: Sequence[str]) -> tuple[dict[str, MeasureReadings], list[str]]:
    entries = [load_registry().measures[name] for name in names]
    progress = Counted()
    found = observe(plan, entries, store, progress, **HOW)  # type: ignore[arg-type]
    return {one.measure.name: one for one in found}, progress.computed


# -- networks ----------------------------------------------------------------------------------------------


def test_batch_norm_of_rows_in_a_stack() -> None:
    """Against the modules themselves, in training and after it."""
    shape = AuditShape("fcn", 2, 5, "batch")
    networks = [make_audit_network(shape, seed) for seed in (0, 1)]
    images = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    stack = StackedNetworks(networks)
    batch = images.permute(1, 2, 3, 0)[None].expand(2, -1, -1, -1, -1).contiguous()
    stacked = stack.logits(stack.theta, batch, training=True)
    for place, network in enumerate(networks):
        torch.testing.assert_close(stacked[place].T, network.train()(images))
        torch.testing.assert_close(stack.evaluate(images)[place], network.eval()(images))


def test_the_function_of_a_layer_norm_network_does_not_see_the_size_of_its_weights() -> None:
    network = make_audit_network(AuditShape("fcn", 2, 6, "layer"), 0).double()
    images = torch.randn(5, 1, 8, 8, dtype=torch.float64)
    before = network(images)
    trained = [p for p in network.parameters() if p.requires_grad]
    assert len(trained) == 4  # weights and biases of two layers; the readout is not trained
    with torch.no_grad():
        for parameter in trained:
            parameter.mul_(1e6)
    torch.testing.assert_close(network(images), before, rtol=1e-9, atol=1e-9)


# -- small stacks ------------------------------------------------------------------------------------------


def few(name: str, *kept: int | str, epochs: int = 25) -> StackSetup:
    stressor = name.partition(" ")[0]
    setup = small(next(one for one in stacks_of(stressor) if one.name == name), epochs)
    images = structs.replace(setup.images, train_size=100)
    return replace(setup, images=images, keep=kept or setup.keep, rates=setup.rates[:1], seeds=(0,))


@dataclass(frozen=True)
class Made:
    plan: AuditPlan
    store: Path
    readings: dict[str, MeasureReadings]

    def folder(self, name: str) -> Path:
        with Store(self.store) as store:
            return store.folder(next(one for one in self.plan.stacks if one.name == name).stack.key)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    setups = [
        few("drift fcn adam", 1, 25, "interpolation"),
        few("hysteresis sgd 0.01", 1, 2, epochs=2),
        few("pixels fcn one order sgd", epochs=2),
        few("pixels fcn as they are sgd", epochs=2),
    ]
    plan = plan_audit([], setups=setups)
    store = tmp_path_factory.mktemp("audit")
    return Made(plan, store, read(plan, store, ["params", "baseline_random"])[0])


def test_networks_are_kept_on_their_way(made: Made) -> None:
    folder = made.folder("drift fcn adam")
    kept = read_result(folder, StackResult).kept
    assert [(one.mark, one.epoch) for one in kept[:2]] == [("1", 1), ("25", 25)]
    first = kept[2]
    assert first.mark == "interpolation"
    assert first.reached
    trace = load_file(folder / "trace.safetensors")["0.accuracy"]
    assert first.epoch == 1 + int((trace == 1).nonzero()[0])  # the first epoch with every label right
    assert load_file(folder / "final.safetensors")["hidden.0.weight"].dtype == torch.float16


def test_training_goes_on_from_interpolation(made: Made) -> None:
    before = read_result(made.folder("drift fcn adam"), StackResult).kept[2]
    folder = made.folder("hysteresis sgd 0.01")
    kept = read_result(folder, StackResult).kept
    assert [one.epoch - before.epoch for one in kept] == [1, 2]
    trace = load_file(folder / "trace.safetensors")["0.loss"]
    assert len(trace) == before.epoch + 2
    earlier = load_file(made.folder("drift fcn adam") / "trace.safetensors")["0.loss"]
    torch.testing.assert_close(trace[: before.epoch], earlier[: before.epoch])
    initial = [load_file(made.folder(n) / "initial.safetensors")["head.weight"] for n in _BOTH]
    assert torch.equal(initial[0], initial[1])


_BOTH = ("drift fcn adam", "hysteresis sgd 0.01")


def test_moved_pixels_and_moved_weights_are_the_same_run(made: Made) -> None:
    plain, moved = (made.folder(f"pixels fcn {data} sgd") for data in ("as they are", "one order"))
    shape = read_result(plain, StackResult).shape
    first, second = (kept_model(folder, shape, 0) for folder in (plain, moved))
    weights = [network.state_dict()["hidden.0.weight"] for network in (first, second)]
    torch.testing.assert_close(weights[0][:, pixel_order()], weights[1], rtol=1e-2, atol=1e-3)


def test_errors_are_those_of_the_networks_that_are_read(made: Made) -> None:
    folder = made.folder("drift fcn adam")
    stack = read_result(folder, StackResult)
    with Store(made.store) as store:
        raw, labels = heldout_set(store.folder(made.plan.heldout.key), stack.images)
    network: nn.Module = kept_model(folder, stack.shape, 1)
    wrong = network(standardised(raw, stack.mean, stack.std)).argmax(dim=1) != labels
    truth = made.readings["params"].observed.truths[made.plan.networks[1].label]
    assert truth.error == pytest.approx(float(wrong.double().mean()))
    assert truth.test_size == 497


def test_readings_are_taken_once(made: Made) -> None:
    again, computed = read(made.plan, made.store, ["params", "baseline_random"])
    assert computed == []
    for name, one in made.readings.items():
        assert again[name].observed.readings == one.observed.readings
    # One seed of shared parts, and one seed for each network's own draws.
    values = {r.value for r in made.readings["baseline_random"].observed.readings.values()}
    assert len(values) == len(made.plan.networks)


def test_a_pack_gives_the_same_networks(made: Made, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    finish(
        made.plan.cells(),
        made.store,
        Counted(),
        lambda store, _: write_audit_pack(made.plan, store, pack, provenance()),
        **HOW,  # type: ignore[arg-type]
    )
    found = read_pack(pack, AuditManifest)
    setups = [few("drift fcn adam", 1, 25, "interpolation"), few("hysteresis sgd 0.01", 1, 2, epochs=2)]
    unpacked = plan_audit([], found, setups)
    readings, computed = read(unpacked, tmp_path / "store", ["params"])
    assert not any("held-out" in label or "train " in label for label in computed)
    own = made.readings["params"].observed
    for label, reading in readings["params"].observed.readings.items():
        assert reading.value == own.readings[label].value
        assert readings["params"].observed.truths[label] == own.truths[label]
    compared = finish(
        made.plan.cells(),
        made.store,
        Counted(),
        lambda s, _: compare_audit(found, made.plan, s),
        **HOW,  # type: ignore[arg-type]
    )
    assert all(one.same_bits for one in compared)


def test_label_noise_and_tasks(made: Made, tmp_path: Path) -> None:
    with Store(made.store) as store:
        pool = shutil.copytree(store.folder(made.plan.training.key), tmp_path / "pool")
    clean, half, all_ = (training_set(pool, AuditImages("digits", 300, share)) for share in (0, 0.5, 1))
    assert torch.equal(clean.raw, all_.raw)
    # A redrawn label is right by chance in a tenth of the cases.
    assert float((clean.labels == half.labels).double().mean()) == pytest.approx(0.55, abs=0.06)
    assert float((clean.labels == all_.labels).double().mean()) == pytest.approx(0.1, abs=0.06)
    assert set(training_set(pool, AuditImages("digits 0/1", 150)).labels.tolist()) == {0, 1}
    own = training_set(pool, AuditImages("digits", 50, permutation="own")).raw
    plain = training_set(pool, AuditImages("digits", 50)).raw
    assert torch.equal(own.flatten(1).sort().values, plain.flatten(1).sort().values)
    assert not torch.equal(own, plain)


def test_exp_runs_are_one_function_however_large_the_weights(made: Made, tmp_path: Path) -> None:
    """As they are trained; those of the pack have 100 steps."""
    inputs = ExponentialInputs(
        step=1,
        shape=AuditShape("fcn", 2, 12, "layer"),
        images=AuditImages("digits", 60),
        rate=0.1,
        momentum=0.9,
        batch_size=20,
        steps=20,
        init_seed=1,
        order_seed=2,
        schedules=[(1.0, 0.0), (0.8, 0.0), (1.0, 0.01), (0.88, 0.01)],
    )
    with Store(made.store) as store:
        kept = train_exponential(inputs, {"training": store.folder(made.plan.training.key)}, tmp_path).kept
    assert [one.function_change is not None and one.function_change < 1e-10 for one in kept] == [True] * 4
    weights = load_file(tmp_path / "final.safetensors")["hidden.1.weight"].flatten(1)
    assert weights.dtype == torch.float64
    assert float(weights[1].norm() / weights[0].norm()) == pytest.approx(0.8**-20, rel=1e-9)
    assert float(weights[3].norm() / weights[2].norm()) == pytest.approx(0.88**-20, rel=1e-9)


def test_a_try_has_a_network_of_every_stack() -> None:
    """`--quick`: what goes on from another stack finds its network there."""
    plan = plan_audit(["hysteresis"], setups=quick_setups(["hysteresis"]))
    assert [one.name for one in plan.stacks] == [one.name for one in stacks_of("hysteresis")]
    start, *branches = plan.stacks
    assert all(one.stack.sources["start"] == start.stack.key for one in branches)
    assert [len(one.networks) for one in branches] == [1, 1, 1]


def test_the_command_says_it_all(run: Run, tmp_path: Path) -> None:
    done = run("audit", "--stressor", "exp", "-m", "params", "--no-card", "--json")
    assert done.returncode == 0, done.stderr
    (audit,) = json.loads(done.stdout)["audits"]
    assert (audit["measure"], audit["survived"], audit["networks"]) == ("params", 1, 8)
    (verdict,) = audit["stressors"]
    assert (verdict["stressor"], verdict["verdict"], verdict["number"]) == ("exp", "robust", 0)
    assert len(verdict["networks"]) == 2
    page = Path(json.loads(done.stdout)["report"])
    text = (page if page.is_absolute() else tmp_path / page).read_text()
    assert "growth of the weights" in text
    assert "<svg" in text
    assert "dashed: 10 %" in text
    part = run("audit", "-m", "params", "--stressor", "exp", "--records", "audits")
    assert part.returncode == 2
    assert "records are of all stressors" in part.stderr
    nowhere = run("pack", "verify", "--suite", "audit", "--pack", "nowhere")
    assert nowhere.returncode == 2
    assert "no evidence pack in nowhere" in nowhere.stderr
    wrong = run("audit", "-m", "params", "--stressor", "exp,wind")
    assert wrong.returncode == 2
    assert "no stressor 'wind'" in wrong.stderr
