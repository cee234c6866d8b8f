"""What authors ask of a subject: layers, single examples, augmented images, memory of their own."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from torch import nn

import genbench
from genbench.subject.sampling import example_order


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, 4, generator=generator), torch.randint(0, 3, (40,), generator=generator)


def two_layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture
def subject(data) -> genbench.Subject:
    return genbench.Subject.from_module(two_layers(), data=data, hyperparameters={"rate": 0.1})


# -- layers -------------------------------------------------------------------------------------------------


def test_activations_are_what_the_layers_give(subject, data) -> None:
    model, rows = two_layers(), example_order(40)[:10]
    found = subject.activations("0", "1", size=10)
    hidden = data[0][rows] @ model[0].weight.T + model[0].bias
    assert torch.allclose(found["0"], hidden, atol=1e-6)
    assert torch.allclose(found["1"], hidden.clamp(min=0), atol=1e-6)
    assert torch.equal(subject.example_labels(10), data[1][rows])
    assert subject.used == {"weights", "training_data"}
    assert subject.module_names() == ("0", "1", "2")
    assert len(subject.activations("2", size=1000)["2"]) == 40


def test_activations_are_computed_once_for_all_measures(subject) -> None:
    first = subject.activations("1")["1"]
    first.zero_()  # a private copy
    assert subject.fresh(seed=5).activations("1")["1"].abs().sum() > 0
    (count,) = [n for label, n in subject._parts.computations.items() if label.startswith("activations")]
    assert count == 1


class Odd(nn.Module):
    """Gives pairs, flattens examples away, and leaves a layer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.flat, self.alone, self.last = Pair(), Flat(), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        x, _ = self.pair(x)
        self.flat(x)
        return self.last(x)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten()


@pytest.mark.parametrize(
    ("layer", "said"),
    [("pair", "gives tuple"), ("flat", "one row per example"), ("alone", "not used"), ("none", "no layer")],
)
def test_layers_without_activations_say_why(data, layer, said) -> None:
    subject = genbench.Subject.from_module(Odd(), data=data)
    with pytest.raises(genbench.NotApplicable, match=said):
        subject.activations(layer)


# -- gradients of single examples ---------------------------------------------------------------------------


def test_gradients_of_a_linear_network_are_known(data) -> None:
    """For logits W x + b the gradient of the cross-entropy is (p − y) xᵀ in W and p − y in b."""
    model = nn.Linear(4, 3)
    subject = genbench.Subject.from_module(model, data=data)
    found = [torch.cat(parts) for parts in zip(*subject.example_gradients(), strict=True)]
    rows = example_order(40)
    x, y = data[0][rows], data[1][rows]
    error = model(x).softmax(1).detach() - nn.functional.one_hot(y, 3)
    assert torch.allclose(found[0], error[:, :, None] * x[:, None, :], atol=1e-6)
    assert torch.allclose(found[1], error, atol=1e-6)
    assert subject.used == {"gradients", "training_data"}


class LooksAtValues(nn.Module):
    """Its path depends on the input, which a vectorised pass cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = two_layers()

    def forward(self, x):
        return self.layers(x) if bool(x.sum() > -1e9) else x[:, :3]


def test_networks_that_cannot_be_vectorised_are_differentiated_one_by_one(data) -> None:
    plain = genbench.Subject.from_module(two_layers(), data=data)
    odd = genbench.Subject.from_module(LooksAtValues(), data=data)
    for one, other in zip(plain.example_gradients(size=20), odd.example_gradients(size=20), strict=True):
        for first, second in zip(one, other, strict=True):
            assert first.shape == second.shape
            assert torch.allclose(first, second, atol=1e-6)


def test_gradients_of_examples_sum_to_that_of_the_loss(subject, data) -> None:
    model = two_layers()
    loss = nn.functional.cross_entropy(model(data[0]), data[1], reduction="sum")
    expected = torch.autograd.grad(loss, list(model.parameters()))
    sums = [sum(batch.sum(0) for batch in parts) for parts in zip(*subject.example_gradients(), strict=True)]
    for found, wanted in zip(sums, expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-4)


# -- augmented images ---------------------------------------------------------------------------------------


@pytest.fixture
def images() -> genbench.Subject:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, 8, 8, generator=generator)
    x[0] = 3.0
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    return genbench.Subject.from_module(model, data=(x, torch.arange(40) % 3))


def test_flipped_images_are_mirrored_or_as_they_are(images) -> None:
    before = torch.cat([x for x, _ in images.batches()])
    after = torch.cat([x for x, _ in images.augmented_batches("flip")])
    same = (after == before).flatten(1).all(1)
    mirrored = (after == before.flip(-1)).flatten(1).all(1)
    assert (same | mirrored).all()
    assert 5 < int(mirrored.sum()) < 35


def test_shifted_images_move_a_little_and_alike_for_a_seed(images) -> None:
    def taken(seed: int) -> torch.Tensor:
        return torch.cat([x for x, _ in images.fresh(seed=seed).augmented_batches("shift", 16)])

    one, again, other = taken(1), taken(1), taken(2)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.allclose(one[0], torch.full((1, 8, 8), 3.0)), "the edge is repeated"
    before = torch.cat([x for x, _ in images.batches()])
    assert not torch.allclose(one, before)
    assert torch.nn.functional.cosine_similarity(one.flatten(1), before.flatten(1)).mean() > 0.5


def test_what_is_no_image_is_not_augmented(subject, images) -> None:
    with pytest.raises(genbench.NotApplicable, match="only images"):
        next(subject.augmented_batches())
    with pytest.raises(ValueError, match="there are shift, flip"):
        next(images.augmented_batches("blur"))


# -- memory of their own ------------------------------------------------------------------------------------


def test_what_is_cached_is_computed_once_and_copied(subject) -> None:
    calls = []

    def analysis(view):
        calls.append(view.seed)
        return {"tensor": torch.arange(6.0).view(2, 3), "list": [1, "two"], "empty": torch.zeros(0, 2)}

    first = subject.cached("mine", analysis)
    first["tensor"].zero_()
    again = subject.fresh(seed=9).cached("mine", analysis)
    assert torch.equal(again["tensor"], torch.arange(6.0).view(2, 3))
    assert again["list"] == [1, "two"]
    assert again["empty"].shape == (0, 2)
    assert len(calls) == 1
    assert subject.cached("other", lambda view: view.seed) != calls[0], "a key has a seed of its own"


def test_what_cannot_be_sent_cannot_be_cached(subject) -> None:
    with pytest.raises(NotImplementedError, match="Linear cannot be shared"):
        subject.cached("mine", lambda view: nn.Linear(2, 2))


SHARING = """
from pathlib import Path

import genbench
import torch


def analysis(subject):
    with Path({log!r}).open("a") as log:
        log.write(subject.name + "\\n")
    return {{"norms": torch.stack([w.norm() for w in subject.weights()])}}


@genbench.measure
def largest(subject):
    "The largest norm."
    return float(subject.cached("analysis", analysis)["norms"].max())


@genbench.measure
def smallest(subject):
    "The smallest norm."
    return float(subject.cached("analysis", analysis)["norms"].min())


@genbench.measure
def alone(subject):
    "Once a reading."
    return sum(subject.cached("one", lambda s: 1.0) for _ in range(3)) + subject.activations("0")["0"].ndim
"""


def test_measures_of_one_plugin_share_what_they_cache_in_a_run(run, tmp_path, finished_run) -> None:
    shutil.copytree(finished_run / "store", tmp_path / ".genbench")
    shutil.copy(finished_run / "tiny.toml", tmp_path)
    log = tmp_path / "log"
    (tmp_path / "sharing.py").write_text(SHARING.format(log=str(log)))
    # It writes a log, which a sealed reading cannot.
    done = run("run", "--measure", "sharing.py", "--suite", "tiny.toml", "--json", "--no-sandbox")
    found = {one["name"]: one["readings"] for one in json.loads(done.stdout)["measures"]}
    assert len(log.read_text().split("\n")) - 1 == 3, "once for each of three networks, not for each measure"
    suite = genbench.load_suite(tmp_path / "tiny.toml", store=tmp_path / ".genbench")
    for name, pick in (("largest", max), ("smallest", min)):
        for reading in found[name]:
            norms = [float(w.norm()) for w in suite.subject(reading["subject"]).weights()]
            assert reading["value"] == pytest.approx(pick(norms)), done.stderr
    assert {reading["status"] for reading in found["alone"]} <= {"ok", "not_applicable"}


# -- how it was made ----------------------------------------------------------------------------------------


def test_hyperparameters_are_what_was_given(subject, finished_run, tmp_path) -> None:
    assert subject.hyperparameters == {"rate": 0.1}
    subject.hyperparameters["rate"] = 5
    assert subject.fresh().hyperparameters == {"rate": 0.1}
    shutil.copytree(finished_run / "store", tmp_path / "store")
    suite = genbench.load_suite(finished_run / "tiny.toml", store=tmp_path / "store")
    widths = [suite.subject(name).hyperparameters["width"] for name in suite.names]
    assert widths == list(suite.settings["width"])
