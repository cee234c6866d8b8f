"""Several adaptations of each backbone: suites, design, training to one loss, cubes, scores, packs, pages."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Run, in_process
from msgspec.structs import replace
from torch import nn
from workers import built_once

from genbench.errors import UserError
from genbench.leaderboard.build import Folders, build
from genbench.subject.inputs import Inputs
from genbench.suites import load_suite, read_suite
from genbench.testbed.adaptation import AdaptedNetwork, adapt
from genbench.testbed.cube import (
    STATISTICS,
    class_statistics,
    make_cube,
    marginals,
    network_cube,
    over_adaptations,
    read_cube,
    write_cube,
)
from genbench.testbed.design import LEVELS, balanced_design, design_toml, largest_correlation
from genbench.testbed.plan import plan_testbed
from genbench.testbed.score_record import practical_record
from genbench.testbed.step_types import AdaptationRecipe
from genbench.testbed.suite import TestbedSuite
from genbench.testbed.training_set import Shifts, chosen_training_set
from genbench.testbed.truth import practical_truth

pytestmark = pytest.mark.xdist_group("adaptations")  # one worker builds the store for all

SUITE = """
name = "adapted"
summary = "2 backbones, 3 adaptations each, two levels"
kind = "testbed"

[data]
dataset = "glyphs"
seen = 6
unseen = 4
seed = 0
augment_unseen = false
train_per_class = 16
heldout_per_class = 12

[testbed]
backbones = ["mini-efficientnet:b0", "mini-efficientnet:b1"]
zero_shot = [0, 4]
ssim = [0.7, 1.0]
degradation = "gaussian"
unseen_head = "probe"
penalty = 10.0
kappa = "conflict"
kappa_threshold = 0.3

[adapt]
method = "finetune"
epochs = 30
batch_size = 16
learning_rate = 5e-3
head_learning_rate = 1e-2
weight_decay = 0.01
stop = "evaluation"
stop_loss = 0.5
patience = 30
seed = 0

[[adaptations]]
name = "plain"

[[adaptations]]
name = "half"
learning_rate_factor = 2
train_share = 0.5

[[adaptations]]
name = "noisy"
label_noise = 0.1
augmentation = "shift"
weight_decay = 0.1
"""
BACKBONES, ADAPTATIONS = ("b0", "b1"), ("plain", "half", "noisy")
NETWORKS = [f"mini-efficientnet:{one}/{own}" for one in BACKBONES for own in ADAPTATIONS]


def suite_with(folder: Path, old: str = "", new: str = "") -> TestbedSuite:
    assert old in SUITE
    (folder / "adapted.toml").write_text(SUITE.replace(old, new, 1))
    suite = read_suite(folder / "adapted.toml")
    assert isinstance(suite, TestbedSuite)
    return suite


# -- suites and the design ---------------------------------------------------------------------------


def test_every_backbone_is_adapted_in_every_way(tmp_path: Path) -> None:
    suite = suite_with(tmp_path)
    assert [one.name for one in suite.members] == NETWORKS
    assert suite.networks == 6
    half = suite.adapted(suite.members[1])
    assert (half.learning_rate, half.head_learning_rate, half.train_share) == (0.01, 0.02, 0.5)
    assert suite.adapted(suite.members[0]) == suite.adapt
    plan = plan_testbed(suite)
    assert [one.label for one in plan.networks] == NETWORKS
    assert len({one.network.key for one in plan.networks}) == 6


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "half"', 'name = "plain"', "two of [[adaptations]] are called 'plain'"),
        ('name = "half"', 'name = "a/b"', "adaptations.a/b.name = 'a/b', expected a text of letters"),
        ('name = "plain"', "", "lacks adaptations.1.name, a text of letters"),
        ("train_share = 0.5", "train_share = 1.5", "adaptations.half.train_share = 1.5, expected a share"),
        ("label_noise = 0.1", "label_nose = 0.1", "did you mean 'adaptations.noisy.label_noise'"),
        ('"shift"', '"flip"', "expected one of 'none', 'shift'"),
        ("[[adaptations]]", "[adaptations]", "not valid TOML"),
        ("stop_loss = 0.5", "stop_loss = 0", "adapt.stop = 'evaluation' needs an adapt.stop_loss above 0"),
        ('stop = "evaluation"', 'stop = "early"', "expected one of 'training', 'evaluation'"),
        ("penalty = 10.0", 'penalty = 10.0\nadaptations = ["hlaf"]', "unknown adaptation 'hlaf'; did you"),
        ("seed = 0\n\n[[", 'seed = 0\nstop_losses = {"mini-efficientnet:b9" = 1}\n[[', "mini-efficientnet:b"),
        ("seed = 0\n\n[[", "seed = 0\nstop_losses = {b0 = 0}\n[[", "expected a table of backbones with"),
    ],
)  # fmt: skip
def test_a_wrong_adaptation_gives_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(UserError) as problem:
        suite_with(tmp_path, old, new)
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_backbone_may_have_a_loss_of_its_own(tmp_path: Path) -> None:
    losses = 'seed = 0\nstop_losses = {"mini-efficientnet:b1" = 0.25}\n[['
    plan = plan_testbed(suite_with(tmp_path, "seed = 0\n\n[[", losses))
    assert [one.network.inputs["stop_loss"] for one in plan.networks] == [0.5] * 3 + [0.25] * 3


def test_a_suite_may_ask_for_some_adaptations(tmp_path: Path) -> None:
    whole = plan_testbed(suite_with(tmp_path))
    some = plan_testbed(suite_with(tmp_path, "penalty = 10.0", 'penalty = 10.0\nadaptations = ["half"]'))
    assert [one.label for one in some.networks] == [name for name in NETWORKS if name.endswith("half")]
    keys = {one.label: one.network.key for one in whole.networks}
    assert all(keys[one.label] == one.network.key for one in some.networks)


def test_the_design_is_balanced_and_drawn_once() -> None:
    design = balanced_design(LEVELS)
    assert design == balanced_design(LEVELS)
    for name, levels in LEVELS.items():
        counts = [sum(run[name] == level for run in design) for level in levels]
        assert set(counts) == {len(design) // len(levels)}, name
    places = [[list(levels).index(run[name]) for run in design] for name, levels in LEVELS.items()]
    pairs = [abs(np.corrcoef(one, other)[0, 1]) for one, other in combinations(places, 2)]
    assert max(pairs) == pytest.approx(largest_correlation(design, LEVELS))
    assert max(pairs) < 0.25
    with pytest.raises(ValueError, match="4 levels of x cannot occur equally often in 6 runs"):
        balanced_design({"x": (1, 2, 3, 4)})


def test_mini_has_the_design() -> None:
    suite = load_suite("mini")
    assert isinstance(suite, TestbedSuite)
    assert [one.settings() for one in suite.adaptations] == balanced_design(LEVELS)
    assert design_toml(balanced_design(LEVELS)).strip() in suite.path.read_text()
    assert suite.networks == 29 * 6


# -- what is trained on ------------------------------------------------------------------------------


def test_shares_are_nested_and_alike_in_every_class() -> None:
    labels = torch.arange(7).repeat_interleave(20)
    chosen = {
        share: set(chosen_training_set(labels, share=share, noise=0.0, classes=7, seed=3)[0].tolist())
        for share in (0.25, 0.5, 1.0)
    }
    assert chosen[0.25] < chosen[0.5] < chosen[1.0] == set(range(140))
    assert np.bincount(labels[sorted(chosen[0.25])]).tolist() == [5] * 7
    assert (
        set(chosen_training_set(labels, share=0.25, noise=0.0, classes=7, seed=4)[0].tolist()) != chosen[0.25]
    )


def test_wrong_labels_are_a_share_of_the_chosen_and_always_wrong() -> None:
    labels = torch.arange(5).repeat_interleave(40)
    rows, some = chosen_training_set(labels, share=0.5, noise=0.1, classes=5, seed=0)
    _, more = chosen_training_set(labels, share=0.5, noise=0.3, classes=5, seed=0)
    wrong, wronger = some != labels[rows], more != labels[rows]
    assert (int(wrong.sum()), int(wronger.sum())) == (10, 30)
    assert not (wrong & ~wronger).any()
    assert torch.equal(some[wrong], more[wrong])


def test_shifts_move_every_image_a_little() -> None:
    images = torch.zeros(40, 1, 32, 32)
    images[:, :, 12:20, 12:20] = 1.0  # a square in the middle
    moved = Shifts(5)(images)
    assert torch.equal(moved, Shifts(5)(images))
    assert not torch.equal(moved, Shifts(6)(images))
    ink = moved.sum(dim=(1, 2, 3))
    assert ((ink - 64).abs() < 8).all()
    place = torch.arange(32.0)
    centre = (moved.sum(dim=2)[:, 0] * place).sum(dim=1) / ink
    assert (centre - 15.5).abs().max() <= 1.05  # one pixel
    assert (centre - 15.5).abs().max() > 0.5


# -- training to one loss ----------------------------------------------------------------------------

RECIPE = AdaptationRecipe(
    method="finetune", epochs=60, batch_size=16, learning_rate=2e-2, head_learning_rate=2e-2,
    weight_decay=0.0, stop_loss=0.2, patience=60, seed=5, stop="evaluation",
)  # fmt: skip


def small_task(seed: int = 0) -> tuple[AdaptedNetwork, Inputs, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat(24)
    images = torch.randn(96, 6, generator=generator) + 3 * nn.functional.one_hot(labels, 6)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        backbone = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
    return AdaptedNetwork(backbone, 12, 4, seed), Inputs(images), labels


@pytest.mark.parametrize("rate", [1e-2, 3e-2, 1e-1])
def test_training_ends_at_the_loss_in_evaluation_mode(rate: float) -> None:
    network, images, labels = small_task()
    trace = adapt(network, images, labels, replace(RECIPE, learning_rate=rate, head_learning_rate=rate))
    with torch.inference_mode():
        loss = nn.functional.cross_entropy(network(images[:]), labels).item()
    assert loss == pytest.approx(0.2, rel=0.01)
    assert len(trace.loss) < 60
    assert not network.training


def test_a_cap_leaves_the_loss_where_it_is() -> None:
    network, images, labels = small_task()
    trace = adapt(network, images, labels, replace(RECIPE, epochs=1))
    with torch.inference_mode():
        assert nn.functional.cross_entropy(network(images[:]), labels).item() > 0.25
    assert len(trace.loss) == 1


# -- cubes and scores --------------------------------------------------------------------------------


def made_cube(models: int = 3, adaptations: int = 4, seed: int = 0, **more: Any) -> Any:
    """A cube of random classifiers, with the images of both slices."""
    import xarray as xr

    generator = np.random.default_rng(seed)
    skill = generator.uniform(0.3, 0.9, (models, adaptations))
    labels = np.repeat(np.arange(6), 41)
    shape = (2, 3, models, adaptations)
    right = (generator.random((*shape, len(labels))) < skill[..., None]).astype(np.uint8)
    right[0][..., labels >= 4] = 0  # two of the classes are unseen
    error = np.stack([1 - right[..., labels == k].mean(axis=-1) for k in range(6)], axis=-1)
    error[0][..., 4:] = np.nan
    names = [f"m{k}" for k in range(models)]
    own = [f"a{k}" for k in range(adaptations)]
    cube = make_cube(
        class_statistics(error, error / 2),
        zero_shot=[0.0, 1 / 3], ssim=[0.6, 0.8, 1.0], weights=10.0 + np.arange(models),
        models=names, adaptations=own, classes=list("abcdef"), per_class={"error": error},
    ).assign_coords(image_class=("image", labels))  # fmt: skip
    assert isinstance(cube, xr.Dataset)
    axes = ("model", "adaptation", "image")
    cube = cube.assign(
        right_robustness=(("ssim", *axes), right[0]), right_zero_shot=(("zero_shot", *axes), right[:, 2])
    )
    return cube.assign_coords(**more)


def test_marginals_trade_off_and_csv_use_the_mean_over_adaptations(tmp_path: Path) -> None:
    from genbench.testbed.tradeoff import trade_off

    cube = made_cube()
    for name in STATISTICS:
        plain = cube[name].values.mean(axis=3)
        assert np.allclose(over_adaptations(cube)[name].values, plain)
        assert np.allclose(marginals(cube)["ssim"][name].values, plain.mean(axis=(0, 2)))
    flat = make_cube(
        {name: cube[name].values.mean(axis=3) for name in STATISTICS},
        zero_shot=cube["zero_shot"], ssim=cube["ssim"], weights=cube["weights"],
    )  # fmt: skip
    assert trade_off(cube) == trade_off(flat)
    for suffix in ("nc", "csv"):
        write_cube(cube, tmp_path / f"cube.{suffix}")
    again = read_cube(tmp_path / "cube.csv")
    assert all(np.allclose(again[name].values, flat[name].values) for name in STATISTICS)
    assert read_cube(tmp_path / "cube.nc").sizes["adaptation"] == 4


def test_a_stored_cube_has_rounded_kappas_of_classes_and_all_else_as_it_was(tmp_path: Path) -> None:
    cube = made_cube()
    kappa = np.random.default_rng(1).uniform(-1, 1, cube["error"].shape).astype(np.float32)
    kappa[0][..., 4:] = np.nan
    for name in ("kappa_conflict", "kappa_cohen"):
        cube[name] = (cube["error"].dims, kappa)
    write_cube(cube, tmp_path / "cube.nc")
    again = read_cube(tmp_path / "cube.nc")
    for name in cube.data_vars:
        within = 5.1e-5 if str(name).startswith("kappa_c") else 0
        np.testing.assert_allclose(again[name].values, cube[name].values, rtol=0, atol=within)
    assert float(np.nanmax(np.abs(again["kappa_cohen"].values - kappa))) > 1e-5, "it was rounded"


def test_an_unconverged_network_is_in_no_mean_and_no_pair() -> None:
    converged = np.ones((3, 4), dtype=np.uint8)
    converged[1, 2] = 0
    cube = made_cube(converged=(("model", "adaptation"), converged))
    found = over_adaptations(cube)["error_mean"].values
    assert np.allclose(found[:, :, 1], cube["error_mean"].values[:, :, 1, [0, 1, 3]].mean(axis=2))
    truth = practical_truth({"x": cube}, resamples=50)
    readings = {name: float(place) for place, name in enumerate(truth.models["x"])}
    score = truth.score(readings)
    assert score is not None
    assert (score.pairs, score.dropped) == (11 * 10 // 2, 0)
    assert all("m1/a2" not in (pair.better, pair.worse) for pair in score.worst)


def test_the_headline_is_over_all_networks_and_has_two_parts() -> None:
    cube = made_cube()
    flat = network_cube(cube)
    truth = practical_truth({"x": cube}, resamples=50)
    assert truth.models["x"] == [f"m{m}/a{a}" for m in range(3) for a in range(4)]
    readings = dict(zip(truth.models["x"], np.random.default_rng(1).random(12), strict=True))
    errors: dict[bool, list[float]] = {True: [], False: []}
    for level in ({"zero_shot": 0}, {"ssim": 2}):
        rest = flat["error_mean"].isel(level).mean([d for d in ("zero_shot", "ssim") if d not in level])
        d = dict(zip(truth.models["x"], rest.values.tolist(), strict=True))
        for one, other in combinations(readings, 2):
            assert abs(d[one] - d[other]) > 1e-9, "a tie, which rounding would break"
            agreed = np.sign(d[one] - d[other]) * np.sign(readings[one] - readings[other])
            errors[one.split("/")[0] == other.split("/")[0]].append(0.5 * (1 - agreed))
    score = truth.score(readings)
    assert score is not None
    assert score.value == pytest.approx(np.mean(errors[True] + errors[False]))
    assert score.equal_size == pytest.approx(np.mean(errors[True]))
    assert score.across_sizes == pytest.approx(np.mean(errors[False]))
    assert practical_record(score).equal_size == score.equal_size
    assert score.wrong == sum(error == 1 for error in errors[True] + errors[False])


# -- from a suite to a board -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite, the store of a run from scratch, and its JSON; not to be changed."""

    def build(folder: Path) -> None:
        (folder / "adapted.toml").write_text(SUITE)
        done = in_process(
            "run", "--suite", "adapted.toml", "--measure", "param_count", "--measure", "param_norm",
            "--store", "store", "--report", "page.html", "--json", cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder / "run.json").write_text(done.stdout)

    return built_once(tmp_path_factory, "adapted", build)


def test_all_networks_end_at_the_same_loss_on_what_they_were_trained_on(built: Path) -> None:
    from genbench.engine.store import Store
    from genbench.testbed.steps import load_subject

    suite = read_suite(built / "adapted.toml")
    assert isinstance(suite, TestbedSuite)
    plan, store = plan_testbed(suite), Store(built / "store")
    training = store.folder(plan.training_data.key)
    sizes = {}
    for one in plan.networks:
        subject = load_subject(one.label, store.folder(one.network.key), training)
        with torch.inference_mode():
            loss = nn.functional.cross_entropy(subject.final(subject.inputs[:]), subject.labels).item()
        assert loss == pytest.approx(0.5, rel=0.05), one.label
        sizes[one.label] = len(subject.labels)
    assert list(sizes.values()) == [96, 48, 96] * 2


def test_a_run_judges_all_networks_and_both_parts(built: Path) -> None:
    document = json.loads((built / "run.json").read_text())
    assert list(document["evidence"]) == NETWORKS
    found = {one["name"]: one for one in document["measures"]}
    size, norm = found["param_count"]["sign_error"], found["param_norm"]["sign_error"]
    assert size["equal_size"] == 0.5, "adaptations of one backbone tie in size"
    assert (size["pairs"], norm["pairs"]) == (15, 15)
    # Six pairs of one backbone, nine of two; both slices have all of them.
    for score in (size, norm):
        assert score["value"] == pytest.approx((6 * score["equal_size"] + 9 * score["across_sizes"]) / 15)
    page = (built / "page.html").read_text()
    assert "b0/half" in page
    assert "means over 3 adaptations of each" in page
    assert "<svg" in page


def test_the_cube_has_the_axis_and_the_commands_its_mean(built: Path, run: Run) -> None:
    done = run("cube", "--suite", built / "adapted.toml", "--store", built / "store", "--json")
    assert done.returncode == 0, done.stderr
    (family,) = json.loads(done.stdout)["families"]
    assert family["dims"] == ["zero_shot", "ssim", "model", "adaptation"]
    assert family["coordinates"]["adaptation"] == list(ADAPTATIONS)
    assert family["coordinates"]["converged"] == [[1, 1, 1]] * 2
    errors = np.array(family["statistics"]["error_mean"])
    assert errors.shape == (2, 2, 2, 3)
    assert np.allclose(family["marginals"]["ssim"]["error_mean"], errors.mean(axis=(0, 2, 3)))
    shown = run("cube", "--suite", built / "adapted.toml", "--store", built / "store", "--full")
    assert "means over 3 adaptations of each model" in shown.stdout
    point = run("tradeoff", "--suite", built / "adapted.toml", "--store", built / "store", "--json")
    assert json.loads(point.stdout)[0]["objective"] == pytest.approx(family["trade_off"]["objective"])


def test_networks_are_listed_with_their_settings(built: Path, run: Run) -> None:
    done = run("networks", "--suite", built / "adapted.toml", "--store", built / "store", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["network"] for row in rows] == NETWORKS
    half, noisy = rows[1], rows[2]
    assert half["architecture"] == "mini-efficientnet:b0"
    assert (half["settings"]["learning_rate"], half["settings"]["train_share"]) == (0.01, 0.5)
    assert (noisy["settings"]["label_noise"], noisy["settings"]["augmentation"]) == (0.1, "shift")
    assert all(row["judged"] for row in rows)
    assert all(row["train_loss"] == pytest.approx(0.5, rel=0.05) for row in rows)


@pytest.fixture(scope="module")
def shipped(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite with its pack beside it, as a plugin would ship it."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "adapted.toml").write_text(SUITE)
    done = in_process(
        "pack", "build", "-s", "adapted.toml", "--to", "packs/adapted", "--store", built / "store", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_pack_holds_every_network_and_serves_fewer(shipped: Path, built: Path, run: Run) -> None:
    pack = shipped / "packs" / "adapted"
    manifest = json.loads((pack / "pack.json").read_text())
    assert set(manifest["networks"]) == set(NETWORKS)
    # What the adaptations of two backbones were trained on is the same, and is there once.
    assert len(list(pack.glob("*.training.safetensors"))) == 2
    suite = shipped / "adapted.toml"
    done = run("pack", "verify", "-s", suite, "--store", built / "store", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["evidence"]) == 7
    assert all(one["same_bits"] for one in found["evidence"])
    some = run(
        "cube", "-s", suite, "--set", 'testbed.adaptations=["half", "noisy"]', "--json", "--store", "new"
    )
    assert some.returncode == 0, some.stderr
    (family,) = json.loads(some.stdout)["families"]
    assert family["coordinates"]["adaptation"] == ["half", "noisy"]


def test_records_of_a_pack_are_a_board(
    shipped: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings out of the pack are those of the networks that were made; the record holds both parts."""
    from genbench.records.validate import read_records
    from genbench.suites.evidence_packs import find_pack
    from genbench.suites.kind import kind_of

    suite = shipped / "adapted.toml"
    done = run(
        "run",
        "-s",
        suite,
        "-m",
        "param_count",
        "-m",
        "param_norm",
        "--store",
        "store",
        "--records",
        "records",
    )
    assert done.returncode == 0, done.stderr
    loaded = read_suite(suite)
    pack = find_pack(loaded)
    assert pack is not None
    evidence = kind_of(loaded).packed_evidence(loaded, pack)
    files = sorted((tmp_path / "records" / "adapted").glob("*.json"))
    records = {one.name: one for one in read_records(files, evidence)}
    assert {reading.subject for reading in records["param_count"].readings} == set(NETWORKS)
    assert records["param_count"].sign_error["equal_size"] == 0.5
    monkeypatch.setattr("genbench.leaderboard.board.shipped_evidence", lambda name: evidence)
    build(Folders(tmp_path, tmp_path / "records", site=tmp_path / "site"))
    (row,) = [
        one
        for one in json.loads((tmp_path / "adapted.json").read_text())["rows"]
        if one["measure"] == "param_count"
    ]
    assert row["sign_error"]["equal size"] == 0.5
    assert row["questions"]["size"]["value"] == 0.5
    assert "b1/noisy" in (tmp_path / "site" / "adapted" / "measures" / "param_norm.html").read_text()
    known = evidence.known_networks()
    assert known.cluster.tolist() == [0, 0, 0, 1, 1, 1]
    assert known.architecture is not None
    assert known.architecture.tolist() == [0, 0, 0, 1, 1, 1]
    assert set(known.settings) == {
        "learning_rate",
        "weight_decay",
        "train_share",
        "label_noise",
        "augmentation",
    }
    assert not known.repeated
