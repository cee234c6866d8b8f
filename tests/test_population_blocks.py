"""Populations trained in blocks: suites, cells, evidence, the record table and its scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run, cell_files
from PIL import Image
from safetensors.torch import load_file, save_file

from genbench.data import digits, glyphs
from genbench.data.corruptions import CORRUPTIONS, corrupt
from genbench.data.tensor_file import read_row
from genbench.engine.cells import Outcome, Status, Step, make_cell
from genbench.engine.steps import load_step
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.population.blocks import load_member
from genbench.population.domain_folder import load_domains
from genbench.population.networks import ARCHITECTURES, Shape, make_network
from genbench.population.plan import HELDOUT, SHIFTS, TRAINING, plan_population
from genbench.population.pools import Choice, heldout_images, training_set
from genbench.population.suite import CORRUPTION_NAMES, PopulationSuite
from genbench.subject.module_copies import with_state
from genbench.suites import load_suite

SUITE = """
name = "tiny-blocks"
summary = "a few networks"
kind = "population"

[data]
dataset = "digits"
seed = 0
heldout_size = 200
corruptions = ["gaussian_noise", "contrast"]
severities = [1, 5]
shifted_images = 100

[train]
architecture = "fcn"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
batch_size = 32
stop = "accuracy"
stop_cross_entropy = 0.01
max_epochs = 60
depth = 1
learning_rate = 0.1

[grid]
train_size = [40, 160]
width = [8, 16]
seed = [0, 1, 2]
"""


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.toml"
    path.write_text(SUITE)
    return path


def pool(folder: Path, step: Step, datasets: list[str], **inputs: object) -> Path:
    """A pool as the engine stores it; the folder of its cell."""
    given = {
        "step": 1, "datasets": datasets, "versions": [""], "content": [""], "domains": False, "classes": None,
        "seed": 0, "quick": False, **({"heldout_size": None} if step is HELDOUT else {}), **inputs,
    }  # fmt: skip
    with Store(folder) as store:
        cell = make_cell(step, "images", given)
        result = load_step(step.function, given)(given, {}, store.stage(cell.key))
        store.commit(cell, Outcome(Status.OK, result=result), {})
        return store.folder(cell.key)


# -- suites ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        ("nin-digits", 270), ("nin-glyphs", 80), ("nin-fashion", 1280), ("nin-cifar10-svhn", 10_000),
        ("cifar10-ood", 2160), ("cifar10-simplecnn", 1800), ("cifar10-resnetv2", 1800), ("domains", 60),
    ],
)  # fmt: skip
def test_suites_that_ship(name, networks) -> None:
    suite = load_suite(name)
    assert isinstance(suite, PopulationSuite)
    assert suite.networks == networks
    assert str(networks) in suite.summary.replace(",", "")
    plan = plan_population(suite)
    quick = plan_population(load_suite(name, quick=True))
    assert len(plan.networks) == networks == sum(len(block.inputs["networks"]) for block in plan.blocks)
    keys = [cell.key for cell in [*plan.cells(), *quick.cells()]]
    assert len(set(keys)) == len(keys)


def test_nin_digits_is_the_grid_the_issue_asks_for() -> None:
    suite = load_suite("nin-digits")
    assert isinstance(suite, PopulationSuite)
    assert {name: len(values) for name, values in suite.grid.items()} == {
        "train_size": 2, "depth": 3, "width": 3, "learning_rate": 3, "seed": 5,
    }  # fmt: skip
    assert (suite.train.architecture, suite.train.stop_cross_entropy) == ("nin", 0.01)


def test_networks_that_differ_in_rates_and_seeds_share_a_block() -> None:
    plan = plan_population(load_suite("nin-digits"))
    assert [len(block.inputs["networks"]) for block in plan.blocks] == [15] * 18


def test_adaptive_optimizers_take_their_share_of_the_learning_rate() -> None:
    plan = plan_population(load_suite("cifar10-ood"))
    rates = {"sgd": set(), "adam": set(), "rmsprop": set()}
    for block in plan.blocks:
        for network in block.inputs["networks"]:
            rates[block.inputs["recipe"]["optimizer"]].add(round(network["learning_rate"], 9))
    assert rates["sgd"] == {0.1, 0.032, 0.01}
    assert rates["adam"] == rates["rmsprop"] == {0.001, 0.00032, 0.0001}


def test_suites_know_every_corruption() -> None:
    assert set(CORRUPTION_NAMES) == set(CORRUPTIONS)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[train]", "[train]\nstacked = true", "unknown key 'train.stacked'"),
        ('"contrast"]', '"rain"]', "each the name of a corruption"),
        ("severities = [1, 5]", "severities = [0]", "each an integer from 1 to 5"),
        ('corruptions = ["gaussian_noise", "contrast"]\n', "", "there is no data.corruptions"),
        ("train_size = [40, 160]\n", "", "'train_size' must be in exactly one of [data]"),
        ('stop = "accuracy"', 'stop = "soon"', "train.stop = 'soon'"),
        ('architecture = "fcn"', 'architecture = "vgg"', "train.architecture = 'vgg'"),
        ('architecture = "fcn"', 'architecture = "resnetv2"', "depth = 1, but a resnetv2 has 8, 14, 20"),
        ("depth = 1", "depth = 1\ndropout = 1.0", "train.dropout = 1.0, expected a number in [0, 1)"),
        ("depth = 1", "depth = 1\nlabel_noise = 0.1", "unknown key 'train.label_noise'"),
        ("[grid]", "[grid]\nlabel_noise = [0.0, 2.0]", "grid.label_noise = 2.0"),
        ("seed = 0\n", "", "lacks data.seed, an integer of at least 0"),
        (
            "learning_rate = 0.1",
            "learning_rate = inf",
            "train.learning_rate = inf, expected a positive",
        ),
        ("depth = 1", "depth = true", "train.depth = True, expected an integer of at least 1"),
        ("depth = 1", "depth = 1.0", "train.depth = 1.0, expected an integer of at least 1"),
        (
            "severities = [1, 5]",
            "severities = [1, 1]",
            "a list of different values, each an integer",
        ),
        ("[data]", "[data]\ntraining_pool = 100", "100 images are not enough for a train_size of 160"),
        ("[data]", "[data]\ntraining_pool = 200", "training_pool and heldout_size exclude each other"),
    ],
)
def test_a_wrong_suite_gets_a_sentence(suite_file, old, new, words) -> None:
    assert old in SUITE
    suite_file.write_text(SUITE.replace(old, new))
    with pytest.raises(UserError) as problem:
        load_suite(str(suite_file))
    assert words in str(problem.value)


def test_a_whole_number_stays_whole(suite_file) -> None:
    """Keys tell 0 from 0.0: what a user wrote is what is hashed."""
    suite_file.write_text(SUITE.replace("weight_decay = 0.0", "weight_decay = 0"))
    suite = load_suite(str(suite_file))
    assert isinstance(suite, PopulationSuite)
    assert repr(suite.content()["train"]["weight_decay"]) == "0"
    assert repr(plan_population(suite).blocks[0].inputs["networks"][0]["weight_decay"]) == "0"


# -- images ------------------------------------------------------------------------------------------


def test_smaller_training_sets_are_part_of_larger_ones(tmp_path) -> None:
    folder = pool(tmp_path / "pool", TRAINING, ["digits"])
    small, large = (training_set(folder, Choice("digits", size, 0.0, "", 3)) for size in (50, 400))
    assert torch.equal(small.labels, large.labels[:50])
    raw = digits.DATASET.load(DataRequest()).train.batch(range(1078)).float() / 255
    images = small.inputs(torch.device("cpu"))[:]
    assert images.shape == (50, 1, 8, 8)
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std()) == pytest.approx(1, abs=1e-5)
    assert small.raw.dtype == torch.uint8  # nothing holds all of them as networks take them
    back = images * small.std + small.mean
    assert all(float((raw - image).abs().amax(dim=(1, 2, 3)).min()) < 1e-5 for image in back[:5])
    with pytest.raises(UserError, match="train_size = 5000, but digits has 1078 training images"):
        training_set(folder, Choice("digits", 5000, 0.0, "", 3))


def test_label_noise_draws_a_share_of_the_labels_anew(tmp_path) -> None:
    folder = pool(tmp_path / "pool", TRAINING, ["digits"])
    clean, noisy, again = (
        training_set(folder, Choice("digits", 1000, share, "", 0)) for share in (0.0, 0.4, 0.4)
    )
    assert torch.equal(clean.raw, noisy.raw)
    assert torch.equal(noisy.labels, again.labels)
    # Of the 400 drawn anew a tenth comes out as it was.
    assert int((clean.labels != noisy.labels).sum()) == pytest.approx(360, abs=25)


def test_a_domain_that_is_left_out_is_not_trained_on(tmp_path) -> None:
    training = pool(tmp_path / "a", TRAINING, ["glyphs"], domains=True)
    heldout = pool(tmp_path / "b", HELDOUT, ["glyphs"], domains=True)
    data = glyphs.DATASET.load(DataRequest())
    choice = Choice("glyphs", 3600, 0.0, "mono", 0)
    place = data.domain_names.index("mono")
    # Not even opened: a process that runs measures reads the other domains' files alone.
    next(training.glob(f"*.{place}.safetensors")).unlink()
    chosen = training_set(training, choice)
    assert len(chosen.labels) == 3600
    inside, outside = (heldout_images(heldout, choice, inside=flag)[0] for flag in (True, False))
    expected = data.heldout.images[data.heldout.domains == place]
    assert torch.equal(inside, expected)
    assert len(outside) == len(data.heldout) - len(expected)
    with pytest.raises(UserError, match="glyphs has no domain 'gothic'; it has sans, mono, serif"):
        heldout_images(heldout, Choice("glyphs", 10, 0.0, "gothic", 0), inside=True)
    with pytest.raises(UserError, match="digits has no domains to leave out"):
        pool(tmp_path / "c", TRAINING, ["digits"], domains=True)


def draw_domains(root: Path) -> None:
    """Two domains of two classes of five images, each of one level of its own."""
    for domain, level in (("art", 40), ("photo", 200)):
        for place, name in enumerate(("cat", "dog")):
            (root / domain / name).mkdir(parents=True)
            for i in range(5):
                pixels = np.full((40, 50, 3), level + 5 * place + i, np.uint8)
                Image.fromarray(pixels).save(root / domain / name / f"{i}.png")


def test_with_a_training_pool_domains_keep_apart(tmp_path) -> None:
    """What is not trained on is held out, each image in the file of its own domain: more to judge on."""
    draw_domains(tmp_path / "images")
    name, given = f"folder:{tmp_path / 'images'}", {"domains": True, "training_pool": 6}
    training = pool(tmp_path / "a", TRAINING, [name], **given)
    heldout = pool(tmp_path / "b", HELDOUT, [name], **given)
    trained = []
    for place, (domain, level) in enumerate((("art", 40), ("photo", 200))):
        judged, _ = heldout_images(heldout, Choice(name, 2, 0.0, domain, 0), inside=True)
        mine = load_file(next(training.glob(f"*.{place}.safetensors")))["images"]
        levels = [int(image.max()) for image in (*mine, *judged)]
        assert sorted(levels) == list(range(level, level + 10))
        trained.append(len(mine))
    assert sum(trained) == 6


def test_a_folder_of_domains_is_read_as_domainbed_lays_it_out(tmp_path) -> None:
    draw_domains(tmp_path)
    data = load_domains(tmp_path, seed=0)
    assert data.domain_names == ("art", "photo")
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.heldout)) == (16, 4)
    assert data.heldout.domains.bincount().tolist() == [2, 2]
    assert data.train.images.shape[1:] == (3, 32, 32)
    dark = data.train.images[data.train.domains == 0]
    assert int(dark.max()) < 50
    with pytest.raises(UserError, match="lacks image files of two domains or more"):
        load_domains(tmp_path / "art", seed=0)


# -- a run -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> dict[str, object]:
    """One run of the tiny suite: its folder and what it printed as JSON."""
    import subprocess

    from conftest import command

    folder = tmp_path_factory.mktemp("blocks")
    (folder / "blocks.toml").write_text(SUITE)
    done = subprocess.run(
        command(
            "run", "--suite", "blocks.toml", "--measure", "param_norm", "--measure", "gradient_norm",
            "--store", "store", "--table", "table.csv", "--json",
        ),
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {"folder": folder, "document": json.loads(done.stdout)}


def test_every_network_is_read_and_judged(finished) -> None:
    document = finished["document"]
    assert len(document["evidence"]) == 12
    for found in document["evidence"].values():
        assert found["converged"]
        assert found["train_accuracy"] >= 0.99
        assert found["test_size"] == 200
        assert found["gap"] == pytest.approx(found["train_accuracy"] - found["test_accuracy"])
        shifted = found["shifted_accuracy"]
        assert set(shifted) == {f"{n}.{s}" for n in ("gaussian_noise", "contrast") for s in (1, 5)}
        mean = (shifted["contrast.1"] + shifted["contrast.5"]) / 2
        assert found["gap_ood_contrast"] == pytest.approx(found["train_accuracy"] - mean)
        everything = sum(shifted.values()) / 4
        assert found["gap_ood_corrupted"] == pytest.approx(found["train_accuracy"] - everything)
    statuses = {r["status"] for m in document["measures"] for r in m["readings"]}
    assert statuses == {"ok"}


def test_the_record_table_has_every_column_and_exact_values(finished) -> None:
    with (finished["folder"] / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    document = finished["document"]
    assert len(rows) == 12
    wanted = {
        "hp.train_size", "hp.width", "seed", "gap", "gap_ood_contrast",
        "gap_ood_gaussian_noise", "gap_ood_corrupted", "test_error", "test_size", "converged",
        "complexity.param_norm", "complexity.gradient_norm", "complexity.baseline_size",
    }  # fmt: skip
    assert wanted <= set(rows[0])
    readings = {m["name"]: [r["value"] for r in m["readings"]] for m in document["measures"]}
    assert [float(row["complexity.param_norm"]) for row in rows] == readings["param_norm"]
    assert [float(row["gap"]) for row in rows] == [found["gap"] for found in document["evidence"].values()]


def test_score_on_the_table_gives_the_scores_of_the_run(run: Run, finished) -> None:
    done = run("score", finished["folder"] / "table.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"] == finished["document"]["scores"]
    found = {row["score"] for row in finished["document"]["scores"]}
    assert found == {"sign_error", "affine_oracle", "kendall", "independence", "pgdl", "cms"}
    targets = {r["target"] for r in finished["document"]["scores"] if r["score"] == "kendall"}
    assert targets == {"gap", "gap_ood_contrast", "gap_ood_gaussian_noise", "gap_ood_corrupted"}


def test_a_second_run_computes_nothing_and_says_where_every_score_is(run: Run, finished, tmp_path) -> None:
    folder = finished["folder"]
    done = run("run", "--suite", "blocks.toml", "--measure", "param_norm", "--store", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "nothing to compute" in done.stderr
    table = Path("store") / "tables" / "tiny-blocks.csv"
    assert f"every score: genbench score {table}" in done.stdout
    assert len(done.stdout.splitlines()) < 60, "a person reads it, piped or not"
    every = run("score", table, cwd=folder)
    for title in ("Robust sign-error", "Affine oracle", "Granulated Kendall", "PGDL", "CMS and eCMS"):
        assert title in every.stdout
    assert f"table: {Path('store') / 'tables' / 'tiny-blocks.csv'}" in done.stdout
    assert (folder / "store/tables/tiny-blocks.csv").is_file()


def test_networks_of_several_data_sets_are_judged_each_on_its_own(run: Run, suite_file) -> None:
    text = SUITE.replace('dataset = "digits"\n', "").replace('stop = "accuracy"', 'stop = "epochs"')
    text = text.replace("max_epochs = 60", "max_epochs = 1").replace("width = [8, 16]\n", "")
    text = text.replace("train_size = [40, 160]", 'width = [8]\ndataset = ["digits", "glyphs"]')
    text = text.replace("seed = [0, 1, 2]", "seed = [0, 1]").replace("[data]", "[data]\ntrain_size = 40")
    suite_file.write_text(text.replace("[data]", "[data]\nclasses = 5"))
    done = run("run", "--suite", suite_file, "--measure", "params", "--store", "s", "--json", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    shapes = {label: found["shape"] for label, found in document["evidence"].items()}
    sides = {label: (shape["channels"], shape["height"]) for label, shape in shapes.items()}
    assert sides == {
        f"width=8 dataset={name} seed={seed}": side
        for name, side in (("digits", (1, 8)), ("glyphs", (3, 32)))
        for seed in (0, 1)
    }
    assert {shape["classes"] for shape in shapes.values()} == {5}
    # No environment is sure of two seeds; all pairs of networks are compared.
    assert {m["sign_error"]["environments"] for m in document["measures"]} == {0}
    assert document["scores"]


def test_one_worker_gives_the_same_bits(run: Run, finished, tmp_path) -> None:
    (tmp_path / "blocks.toml").write_text(SUITE)
    done = run(
        "run", "--suite", "blocks.toml", "--measure", "baseline_size", "--store", "store", "--jobs", "1"
    )
    assert done.returncode == 0, done.stderr
    two_workers, one_worker = cell_files(finished["folder"] / "store"), cell_files(tmp_path / "store")
    assert sum(name.endswith("final.safetensors") for name in one_worker) == 4
    assert one_worker.items() <= two_workers.items()


def test_a_reading_opens_one_network_of_its_block(finished) -> None:
    plan = plan_population(load_suite(str(finished["folder"] / "blocks.toml")))
    cells = finished["folder"] / "store" / "cells"
    folder = {path.parent.name: path.parent for path in cells.rglob("manifest.json")}
    subject = plan.networks[5]
    block = folder[subject.network.key]
    loaded = load_member(subject.label, block, folder[plan.training_data.key], **subject.place)
    networks = {"initial": loaded.initial_model, "final": loaded.model}
    # Of the files nothing is left: neither themselves nor their other networks.
    assert block.name not in Path("/proc/self/maps").read_text()
    for when, model in networks.items():
        one, stacked = model.state_dict(), load_file(block / f"{when}.safetensors")
        place = plan.places[subject.label]
        assert one.keys() == stacked.keys()
        assert all(torch.equal(value, stacked[name][place]) for name, value in one.items())
        assert all(value.untyped_storage().nbytes() == value.nbytes for value in one.values())
    assert set(loaded.trace) == {"loss", "accuracy", "gradient_norm", "gradient_variance"}
    assert float(loaded.trace["accuracy"][-1]) == 1.0


def test_networks_rounded_to_half_are_what_everything_is_measured_on(run: Run, tmp_path) -> None:
    (tmp_path / "half.toml").write_text(SUITE.replace("[train]", '[train]\nrounding = "float16"'))
    changed = ("--set", "grid.train_size=[40]", "--set", "grid.width=[8]", "--jobs", "1", "--json")
    done = run("run", "--suite", "half.toml", "--measure", "magnitude", "--store", "store", *changed)
    assert done.returncode == 0, done.stderr
    store = tmp_path / "store" / "cells"
    (final,) = store.rglob("final.safetensors")
    (training,) = (
        path.parent
        for path in store.rglob("manifest.json")
        if '"domains"' in path.read_text() and '"heldout_size"' not in path.read_text()
    )
    stacked = load_file(final)
    assert {value.dtype for value in stacked.values()} <= {torch.float16, torch.int64}
    document = json.loads(done.stdout)
    magnitudes = [
        one["value"] for m in document["measures"] if m["name"] == "magnitude" for one in m["readings"]
    ]
    result = json.loads(final.with_name("manifest.json").read_text().partition("\n")[2])["result"]
    for place in range(3):
        member = load_member("it", final.parent, training, place=place)
        state = {name: value[place].float() for name, value in stacked.items()}
        parameters = dict(member.model.named_parameters())
        assert all(torch.equal(value, state[name]) for name, value in parameters.items())
        own = torch.cat([value.detach().double().flatten() for value in parameters.values()]).norm()
        assert magnitudes[place] == pytest.approx(float(own), rel=1e-6)
        logits = member.model(member.inputs[:])
        loss = torch.nn.functional.cross_entropy(logits, member.labels)
        assert result["networks"][place]["train_loss"] == pytest.approx(float(loss), rel=1e-5)
        right = (logits.argmax(1) == member.labels).double().mean()
        assert result["networks"][place]["train_accuracy"] == pytest.approx(float(right))


def test_corrupted_images_come_from_the_held_out_ones(tmp_path) -> None:
    heldout = pool(tmp_path / "heldout", HELDOUT, ["digits"], heldout_size=50)
    out = tmp_path / "shifts"
    out.mkdir()
    inputs = {"step": 1, "corruptions": ["contrast"], "severities": [5], "shifted_images": None, "seed": 0}
    load_step(SHIFTS.function, inputs)(inputs, {"heldout": heldout}, out)
    images, labels = heldout_images(heldout, Choice("digits", 0, 0.0, "", 0), inside=False)
    stored = load_file(out / "digits.safetensors")
    assert torch.equal(stored["labels"], labels)
    assert torch.equal(stored["contrast.5"], corrupt(images, "contrast", 5))


@pytest.mark.parametrize(
    ("path", "words"),
    [("table.txt", "ends in .csv"), ("nowhere/table.csv", "there is no folder nowhere")],
)
def test_a_table_that_cannot_be_written_gets_a_sentence(run: Run, suite_file, path, words) -> None:
    done = run("run", "--suite", suite_file, "--measure", "params", "--table", path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_row_beyond_a_stack_is_refused_and_not_read_from_the_next_tensor(tmp_path) -> None:
    save_file({"a": torch.arange(6.0).view(3, 2), "b": torch.arange(3)}, tmp_path / "stack.safetensors")
    row = read_row(tmp_path / "stack.safetensors", 2)
    assert row["a"].tolist() == [4.0, 5.0]
    assert row["b"].item() == 2
    for place in (-1, 3):
        with pytest.raises(IndexError, match=f"no row {place}"):
            read_row(tmp_path / "stack.safetensors", place)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_copy_with_a_state_is_what_loading_the_state_gives(architecture) -> None:
    depth = 8 if architecture == "resnetv2" else 2
    shape = Shape(architecture, depth, 4, 0.25, channels=1, height=8, image_width=8, classes=3)
    plan, other = make_network(shape, 0).eval(), make_network(shape, 1).eval()
    state = {name: value.clone() for name, value in other.state_dict().items()}
    copied = with_state(plan, state)
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(copied(images), other(images))
    assert str(copied) == str(other)
    assert all(one.data_ptr() == state[name].data_ptr() for name, one in copied.state_dict().items())
    copied.register_forward_hook(lambda *_: None)
    assert not plan._forward_hooks
    name = next(iter(state))
    with pytest.raises(ValueError, match="no place for more"):
        with_state(plan, {**state, "more": state[name]})
    with pytest.raises(ValueError, match=f"{name} is"):
        with_state(plan, {**state, name: state[name][:1]})
