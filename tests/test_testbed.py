"""The practical testbed: suites, images, adaptation, evidence and cubes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file
from torch import nn

from genbench.engine.store import Store, read_manifest
from genbench.errors import UserError
from genbench.plugin.offers import BackboneRequest
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.suites import load_suite, read_suite
from genbench.testbed.adaptation import AdaptedNetwork, adapt, read_state, rounded_state
from genbench.testbed.cube import read_cube
from genbench.testbed.heads import fit_heads
from genbench.testbed.images import turned, turns
from genbench.testbed.judged import judge
from genbench.testbed.kappa import conflict_kappa
from genbench.testbed.plan import plan_testbed
from genbench.testbed.step_types import AdaptationRecipe
from genbench.testbed.steps import load_subject
from genbench.testbed.suite import TestbedSuite

pytestmark = pytest.mark.xdist_group("quick_store")  # one worker builds that store for all

RECIPE = AdaptationRecipe(
    method="finetune",
    epochs=3,
    batch_size=16,
    learning_rate=1e-2,
    head_learning_rate=1e-2,
    weight_decay=0.01,
    stop_loss=0.0,
    patience=3,
    seed=5,
)


# -- suites ------------------------------------------------------------------------------------------


def quick_suite(**changes: object) -> TestbedSuite:
    suite = load_suite("mini-quick", changes=changes)
    assert isinstance(suite, TestbedSuite)
    return suite


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"testbed.kapa": "cohen"}, "did you mean 'testbed.kappa'"),
        ({"testbed.kappa": "fleiss"}, "testbed.kappa = 'fleiss', expected one of 'conflict', 'cohen'"),
        ({"testbed.kappa_threshold": 1.5}, "expected a probability between 0 and 1"),
        ({"testbed.ssim": [0.5, 0.5, 1.0]}, "expected a list of different values"),
        ({"testbed.ssim": [0.5, 0.8]}, "testbed.ssim must contain 1.0"),
        ({"testbed.ssim": [0.0, 1.0]}, "each an SSIM above 0"),
        ({"testbed.zero_shot": [5, 10]}, "testbed.zero_shot must contain 0"),
        ({"testbed.zero_shot": [0, 99]}, "asks for 99 unseen classes, but data.unseen = 10"),
        ({"testbed.backbones": []}, "the name of a backbone"),
        ({"testbed.backbones": ["mini-clip:short1"]}, "did you mean 'mini-clip:short"),
        ({"testbed.degradation": "gausian"}, "did you mean 'gaussian'"),
        ({"testbed.unseen_head": "text"}, "needs a text tower, which mini-efficientnet does not have"),
        ({"data.seen": 1}, "data.seen = 1, expected an integer of at least 2"),
        ({"data.augment_unseen": "yes"}, "expected true or false"),
        ({"adapt.method": "lora"}, "expected one of 'finetune', 'frozen'"),
        ({"adapt.learning_rate": 0}, "expected a positive number"),
        ({"train.depth": 3}, "unknown key 'train'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_field_gives_one_sentence(changes, sentence) -> None:
    with pytest.raises(UserError) as problem:
        load_suite("mini-quick", changes=changes)
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("name", ["mini", "mini-quick", "lite", "cifar100-clip", "imagenet100-efficientnet"])
def test_shipped_suites_are_valid_and_have_the_papers_levels(name) -> None:
    suite = load_suite(name)
    assert isinstance(suite, TestbedSuite)
    plan = plan_testbed(suite)
    assert len(plan.networks) == suite.networks
    if name not in ("mini-quick", "lite"):
        assert suite.testbed.zero_shot == [0, 10, 20, 30, 40, 50]
        assert suite.testbed.ssim == [0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
        assert (suite.data.seen, suite.data.unseen) == (50, 50)
        assert suite.data.augment_unseen == (name != "mini")


def test_a_users_own_file_is_a_suite(tmp_path) -> None:
    text = load_suite("mini-quick").path.read_text().replace('name = "mini-quick"', 'name = "mine"')
    (tmp_path / "mine.toml").write_text(text)
    assert load_suite(str(tmp_path / "mine.toml")).name == "mine"


def test_options_change_keys_only_of_what_they_change() -> None:
    plain, cohen = plan_testbed(quick_suite()), plan_testbed(quick_suite(**{"testbed.kappa": "cohen"}))
    assert [s.network.key for s in plain.networks] == [s.network.key for s in cohen.networks]
    assert [f.cube.key for f in plain.families.values()] == [f.cube.key for f in cohen.families.values()]
    assert [f.tradeoff.key for f in plain.families.values()] != [
        f.tradeoff.key for f in cohen.families.values()
    ]
    seeded = plan_testbed(quick_suite(**{"adapt.seed": 1}))
    assert not {s.network.key for s in plain.networks} & {s.network.key for s in seeded.networks}


def test_quick_cells_are_never_full_ones() -> None:
    full, quick = plan_testbed(load_suite("mini")), plan_testbed(load_suite("mini", quick=True))  # type: ignore[arg-type]
    assert not {c.key for c in full.cells()} & {c.key for c in quick.cells()}


# -- images ------------------------------------------------------------------------------------------


def augment(images: torch.Tensor, seed: int) -> torch.Tensor:
    return turned(images, turns(len(images), seed))


def test_augmentation_is_seeded_and_moves_every_image_a_little() -> None:
    data = load_registry().get("datasets", "glyphs").item
    from genbench.plugin.offers import DataRequest

    images = data.load(DataRequest()).heldout.batch(range(300))
    once, again, other = augment(images, 0), augment(images, 0), augment(images, 1)
    assert torch.equal(once, again)
    assert once.dtype == torch.uint8
    assert once.shape == images.shape
    assert (once != images).flatten(1).any(dim=1).all()
    assert not torch.equal(once, other)
    # A crop of at least 80 % keeps the ink: neither blank nor inverted.
    ink = [batch.float().mean(dim=(1, 2, 3)) for batch in (images, once)]
    assert float(torch.corrcoef(torch.stack(ink))[0, 1]) > 0.7


def test_half_of_the_images_are_flipped() -> None:
    left = torch.zeros(400, 1, 32, 32, dtype=torch.uint8)
    left[..., :8] = 255
    found = augment(left, 3).float()
    flipped = found[..., 16:].sum(dim=(1, 2, 3)) > found[..., :16].sum(dim=(1, 2, 3))
    assert 0.4 < float(flipped.double().mean()) < 0.6


# -- adaptation --------------------------------------------------------------------------------------


def small_task() -> tuple[AdaptedNetwork, Inputs, torch.Tensor]:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.LazyLinear(8))
    images = torch.randn(48, 3, 8, 8)
    backbone(images[:2])
    backbone.eval()
    return AdaptedNetwork(backbone, 8, 3, seed=1), Inputs(images), torch.arange(48) % 3


def test_adaptation_is_a_function_of_its_seed() -> None:
    states = []
    for seed in (5, 5, 6):
        network, images, labels = small_task()
        adapt(network, images, labels, replace(RECIPE, seed=seed))
        states.append(rounded_state(network))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_adaptation_leaves_the_global_generator_alone() -> None:
    network, images, labels = small_task()
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    adapt(network, images, labels, RECIPE)
    assert torch.equal(torch.rand(3), expected)


def test_a_frozen_backbone_keeps_every_bit() -> None:
    network, images, labels = small_task()
    before = {name: value.clone() for name, value in network.backbone.state_dict().items()}
    head = network.head.weight.detach().clone()
    adapt(network, images, labels, replace(RECIPE, method="frozen"))
    assert all(torch.equal(value, before[name]) for name, value in network.backbone.state_dict().items())
    assert not torch.equal(network.head.weight, head)


def test_a_training_set_of_one_batch_is_adapted_to() -> None:
    network, images, labels = small_task()
    trace = adapt(network, images, labels, replace(RECIPE, epochs=12, batch_size=len(labels), patience=12))
    assert trace.loss[-1] < trace.loss[0]


def test_training_stops_early_on_its_loss() -> None:
    network, images, labels = small_task()
    trace = adapt(network, images, labels, replace(RECIPE, epochs=40, stop_loss=0.5))
    assert len(trace.loss) < 40
    assert trace.loss[-1] <= 0.5 < trace.loss[-2]
    network, images, labels = small_task()
    still = replace(RECIPE, epochs=9, learning_rate=1e-12, head_learning_rate=1e-12)
    trace = adapt(network, images, labels, still)
    best = np.minimum.accumulate(trace.loss)
    assert len(trace.loss) == 9 or (np.diff(best)[-RECIPE.patience :] == 0).all()


def test_the_trace_holds_the_variance_of_batch_gradients() -> None:
    """Against numpy's own variance of the gradients, taken with a learning rate that moves nothing."""
    network, images, labels = small_task()
    twin, _, _ = small_task()
    still = replace(RECIPE, epochs=1, learning_rate=1e-12, head_learning_rate=1e-12, weight_decay=0.0)
    trace = adapt(network, images, labels, still)
    twin.train()
    order = torch.randperm(48, generator=torch.Generator().manual_seed(still.seed))
    gradients = []
    for rows in order.tensor_split(3):
        twin.zero_grad()
        nn.functional.cross_entropy(twin(images[rows]), labels[rows]).backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None]).numpy()
        )
    stacked = np.stack(gradients).astype(np.float64)
    assert trace.gradient_variance[0] == pytest.approx(stacked.var(axis=0).mean(), rel=1e-4)
    assert trace.gradient_norm[0] == pytest.approx(np.linalg.norm(stacked, axis=1).mean(), rel=1e-5)


def test_rounding_to_half_precision_is_final() -> None:
    network, _, _ = small_task()
    first = rounded_state(network)
    network.load_state_dict(read_state(first))
    assert all(torch.equal(value, first[name]) for name, value in rounded_state(network).items())
    network.head.weight.data.fill_(1e6)
    with pytest.raises(UserError, match="fp16 cannot hold"):
        rounded_state(network)


# -- evidence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen_head", ["probe", "prototype", "text"])
def test_evidence_agrees_with_one_cell_at_a_time(unseen_head) -> None:
    """Every cell again from its own logits, with a loop over classes and the golden-tested kappa."""
    generator = torch.Generator().manual_seed(0)
    seen, total, width = 4, 7, 6
    centres = 1.3 * torch.randn(total, width, generator=generator)
    labels = torch.arange(total * 12) % total
    training = centres[labels] + torch.randn(len(labels), width, generator=generator)
    heldout_labels = torch.arange(total * 9) % total
    heldout = [
        centres[heldout_labels] + noise * torch.randn(len(heldout_labels), width, generator=generator)
        for noise in (2.0, 1.0)
    ]
    text = centres + 0.1 * torch.randn(total, width, generator=generator) if unseen_head == "text" else None
    found = judge(
        training=training,
        training_labels=labels,
        heldout=heldout,
        heldout_labels=heldout_labels,
        seen=seen,
        zero_shot=[0, 1, 3],
        penalty=10.0,
        threshold=0.3,
        unseen_head=unseen_head,
        prototype_images=3,
        text=text,
    )
    embeddings = text
    if unseen_head == "prototype":
        means = torch.stack([training[labels == k][:3].mean(dim=0) for k in range(total)])
        embeddings = nn.functional.normalize(means, dim=1)
    heads = fit_heads(training, labels, [0, 1, 3], seen=seen, embeddings=embeddings)
    for i, z in enumerate((0, 1, 3)):
        count = seen + z
        for j, features in enumerate(heldout):
            rows = heldout_labels < count
            logits = heads[i].logits(features[rows])
            wrong = logits.argmax(dim=1) != heldout_labels[rows]
            for k in range(count):
                share = wrong[heldout_labels[rows] == k].double().mean()
                assert found["error"][i, j, k].item() == pytest.approx(share.item(), abs=1e-12)
                known = labels == k
                own = (heads[i].logits(training[known]).argmax(dim=1) != k).double().mean()
                assert found["gap"][i, j, k].item() == pytest.approx((share - own).item(), abs=1e-12)
            kappa = conflict_kappa(torch.softmax(logits, dim=1).numpy())
            np.testing.assert_allclose(found["kappa_conflict"][i, j, :count], kappa, atol=1e-12)
            assert torch.equal(found["right"][i, j][rows].bool(), ~wrong)
            assert not found["right"][i, j][~rows].any()
        assert found["error"][i, :, count:].isnan().all()


# -- end to end --------------------------------------------------------------------------------------


def test_the_cube_is_what_the_stored_networks_do(quick_store: Path) -> None:
    """One cell of each family again: whole forward passes, scikit-learn's regression, numpy statistics."""
    from sklearn.linear_model import LogisticRegression

    suite = quick_suite()
    plan = plan_testbed(suite)
    noise = next(cell for cell in plan.steps if cell.step.name == "noise")
    parts = {c.inputs["part"]: c for c in plan.steps if c.step.name == "images"}
    with Store(quick_store) as store:
        seen, unseen, heldout = (
            load_file(store.folder(parts[name].key) / "images.safetensors")
            for name in ("seen", "unseen", "heldout")
        )
        degraded = load_file(store.folder(noise.key) / "0.85.safetensors")["images"]
        achieved = {
            entry["ssim"]: entry["achieved"]
            for entry in read_manifest(store.folder(noise.key))["result"]["recipe"]
        }
        for name, family in plan.families.items():
            cube = read_cube(store.folder(family.cube.key) / "cube.nc")
            assert cube.attrs["family"] == name
            assert all(abs(achieved[level] - level) <= 0.01 for level in suite.testbed.ssim)
            model = family.backbones[1]
            subject = next(s for s in plan.networks if s.label == model)
            backbone = load_registry().get("backbones", model).item.load(BackboneRequest())
            network = AdaptedNetwork(backbone.module, backbone.feature_width, 10, 0)
            network.load_state_dict(
                {k: v.float() if v.is_floating_point() else v
                 for k, v in load_file(store.folder(subject.network.key) / "final.safetensors").items()}
            )  # fmt: skip
            with torch.no_grad():
                network.eval()
                training = network.backbone(
                    backbone.preprocess(torch.cat([seen["images"], unseen["images"]]))
                )
                features = network.backbone(backbone.preprocess(degraded))
            labels = torch.cat([seen["labels"], unseen["labels"]])
            known, tested = labels < 15, heldout["labels"] < 15
            mean, deviation = (
                training[labels < 10].mean(dim=0),
                training[labels < 10].std(dim=0, correction=0),
            )
            regression = LogisticRegression(C=0.1, tol=1e-8, max_iter=5000)
            regression.fit((training[known] - mean) / deviation, labels[known])
            prediction = regression.predict((features[tested] - mean) / deviation)
            truth = heldout["labels"][tested].numpy()
            errors = np.array([np.mean(prediction[truth == k] != k) for k in range(15)])
            cell = cube.sel(model=model, ssim=0.85).isel(zero_shot=1)
            assert float(cell["zero_shot"]) == pytest.approx(5 / 15)
            # A rare image on the very edge may fall to the other side in another solver.
            assert np.abs(cell["error"].values[:15] - errors).sum() <= 2 / 20
            own = cell["error"].values[:15]
            assert float(cell["error_mean"]) == pytest.approx(own.mean())
            assert float(cell["error_sd"]) == pytest.approx(own.std())
            assert float(cell["error_p10"]) == pytest.approx(np.percentile(own, 10))


def test_a_subject_is_the_adapted_network_its_start_and_the_seen_training_set(quick_store: Path) -> None:
    plan = plan_testbed(quick_suite())
    subject = plan.networks[0]
    with Store(quick_store) as store:
        training = store.folder(plan.training_data.key)
        loaded = load_subject(subject.label, store.folder(subject.network.key), training)
        result = read_manifest(store.folder(subject.network.key))["result"]
    assert loaded.classes == 10
    assert sorted(set(loaded.labels.tolist())) == list(range(10))
    with torch.no_grad():
        accuracy = (loaded.model(loaded.inputs[:]).argmax(dim=1) == loaded.labels).double().mean()
    assert float(accuracy) == pytest.approx(result["train_accuracy"], abs=1e-9)
    pretrained = load_registry().get("backbones", subject.label).item.load(BackboneRequest()).module
    assert loaded.initial_model is not None
    start = loaded.initial_model.backbone.state_dict()
    assert all(torch.equal(value, start[name]) for name, value in pretrained.state_dict().items())
    assert any(
        not torch.equal(value, start[name]) for name, value in loaded.model.backbone.state_dict().items()
    )
    assert loaded.trace is not None
    assert len(loaded.trace["loss"]) == result["epochs"]
    # fp16 all the way: nothing between two halves survived.
    assert all(torch.equal(p, p.half().float()) for p in loaded.model.parameters())


def test_a_finished_run_looks_at_nothing_but_what_it_shows(quick_store: Path, run) -> None:
    """Features and degraded images may go once the cubes are there."""
    done = run("run", "-s", "mini-quick", "-m", "params", "--store", quick_store, "--json")
    document = json.loads(done.stdout)
    assert "nothing to compute" in done.stderr
    assert document == {**json.loads((quick_store.parent / "run.json").read_text()), **_changing(document)}
    kinds = {c.step.name for c in plan_testbed(quick_suite()).cells() if c.on_demand}
    assert kinds == {"images", "noise", "adapted", "features", "testbed_evidence"}


def _changing(document: dict) -> dict:
    """What may differ between two runs: whether readings were stored, and where the report went."""
    return {key: document[key] for key in ("measures", "report") if key in document}


def test_both_slices_and_the_trade_off_are_in_the_record(quick_store: Path) -> None:
    document = json.loads((quick_store.parent / "run.json").read_text())
    (params,) = (m for m in document["measures"] if m["name"] == "params")
    parts = params["sign_error"]["parts"]
    assert {(p["family"], p["slice"], p["statistic"]) for p in parts} == {
        (family, slice_, statistic)
        for family in ("mini-clip", "mini-efficientnet")
        for slice_ in ("robustness", "zero_shot")
        for statistic in ("mean", "sd", "p10")
    }
    headline = np.mean([p["value"] for p in parts if p["statistic"] == "mean"])
    assert params["sign_error"]["value"] == pytest.approx(headline)
    assert set(document["trade_off"]) == {"mini-clip", "mini-efficientnet"}
    assert all(point["gap"] <= 1e-3 for point in document["trade_off"].values())
    assert tomllib.loads(load_suite("mini-quick").path.read_text())["name"] == document["suite"]


def test_read_suite_reports_a_missing_table(tmp_path) -> None:
    (tmp_path / "broken.toml").write_text('name = "x"\nsummary = "y"\nkind = "testbed"\n')
    with pytest.raises(UserError, match=r"lacks the table \[data\]"):
        read_suite(tmp_path / "broken.toml")
