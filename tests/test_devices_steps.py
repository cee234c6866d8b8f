"""Steps compute where they are told to, and make no tensor without saying where.

Inside `torch.set_default_device("meta")` a tensor made without a device has no values, so that whatever uses
it fails. A stack, corruptions and degradations also work on tensors of the device "meta" itself, as far as no
value is asked for: a tensor that was left on the CPU does not mix with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_degradations import METHODS, scenes
from torch import Tensor

from genbench.data.corruptions import CORRUPTIONS, corrupt
from genbench.engine.cells import Outcome, Status
from genbench.engine.compute import Compute, current, use
from genbench.engine.steps import load_step
from genbench.engine.store import Store, read_manifest, write_sealed
from genbench.plugin.offers import DegradationTask
from genbench.plugin.registry import load_registry
from genbench.population import blocks, layers
from genbench.population.networks import ARCHITECTURES, make_network
from genbench.population.optimizers import OPTIMIZERS, StackedOptimizer
from genbench.population.plan import plan_population
from genbench.population.stacked import StackedNetworks
from genbench.population.step_types import Shape
from genbench.suites import load_suite
from genbench.testbed import ssim
from genbench.testbed.cube_steps import CUBE_FILE, chosen_cube, cube
from genbench.testbed.degradations import autoencoder, fgsm
from genbench.testbed.degradations.calibrate import calibrate, degrade
from genbench.testbed.judged import judge
from genbench.testbed.step_types import CubeInputs

META = torch.device("meta")


@contextmanager
def nowhere() -> Iterator[None]:
    """The default device is none; nothing that was made before is at hand."""
    for kept in (layers._sources, ssim._taps, blocks._images):
        kept.cache_clear()
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def computing_on(device: str) -> Iterator[None]:
    before = current()
    use(Compute(device=device))
    try:
        yield
    finally:
        use(before)


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """To the bit, NaN included."""
    return first.keys() == second.keys() and all(
        (value.dtype, value.shape) == (second[name].dtype, second[name].shape)
        and value.numpy().tobytes() == second[name].numpy().tobytes()
        for name, value in first.items()
    )


# -- populations -------------------------------------------------------------------------------------

SUITE = """
name = "tiny"
summary = "two networks"
kind = "population"
[data]
dataset = "digits"
seed = 0
train_size = 48
SHIFTS
[train]
architecture = "nin"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.001
batch_size = 16
stop = "accuracy"
stop_cross_entropy = 0.01
max_epochs = 2
depth = 2
width = 4
[grid]
learning_rate = [0.1, 0.01]
seed = [0]
"""


def cells_of(suite: Path, folder: Path) -> dict[str, tuple[Any, dict[str, bytes]]]:
    """All cells of a population computed in this process: label to result and files."""
    plan = plan_population(load_suite(str(suite)))
    found = {}
    with Store(folder) as store:
        for cell in plan.cells():
            parents = {name: store.folder(key) for name, key in cell.parents.items()}
            result = load_step(cell.step.function, cell.inputs)(cell.inputs, parents, store.stage(cell.key))
            store.commit(cell, Outcome(Status.OK, result=result), {})
            home = store.folder(cell.key)
            files = {path.name: path.read_bytes() for path in home.glob("*.safetensors")}
            found[cell.label] = (read_manifest(home)["result"], files)
    return found


CASES: dict[str, dict[str, str]] = {
    "pools, label noise, a stack and its calibration": {
        "SHIFTS": 'label_noise = 0.2\ntruth = "ece"\nclasses = 5\nheldout_size = 40',
    },
    "a part of the training split, all corruptions": {
        "SHIFTS": f"training_pool = 100\ncorruptions = {list(CORRUPTIONS)}\nseverities = [4]\n"
        "shifted_images = 10".replace("'", '"'),
    },
    "a domain left out": {
        "SHIFTS": 'heldout_domain = "sans"\nheldout_size = 60', '"digits"': '"glyphs"',
        "depth = 2": "depth = 1",
    },
    "dropout, adam, cosine": {
        "SHIFTS": "", '"nin"': '"resnet"', '"sgd"': '"adam"',
        "momentum = 0.9": "momentum = 0.0\ndropout = 0.3",
        "max_epochs = 2": 'max_epochs = 2\nschedule = "cosine"',
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cells_of_a_population(case: str, tmp_path: Path) -> None:
    text = SUITE
    for old, new in CASES[case].items():
        assert old in text
        text = text.replace(old, new)
    suite = tmp_path / "tiny.toml"
    suite.write_text(text)
    with nowhere():
        found = cells_of(suite, tmp_path / "nowhere")
    expected = cells_of(suite, tmp_path / "usual")
    assert len(found) >= 4
    assert found == expected


def test_domains_of_a_folder(tmp_path: Path) -> None:
    from PIL import Image

    from genbench.population.domain_folder import load_domains

    numbers = np.random.default_rng(0)
    for place in ("art/cat", "art/dog", "photo/cat", "photo/dog"):
        (tmp_path / place).mkdir(parents=True)
        for i in range(5):
            pixels = numbers.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / place / f"{i}.png")
    with nowhere():
        found = load_domains(tmp_path, seed=1)
    expected = load_domains(tmp_path, seed=1)
    for mine, theirs in ((found.train, expected.train), (found.heldout, expected.heldout)):
        assert same(vars(mine), vars(theirs))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_stack_follows_its_device(architecture: str) -> None:
    """Passes forward and backward, dropout from CPU generators, and a step of every optimizer."""
    depth = 8 if architecture == "resnetv2" else 2
    shape = Shape(architecture, depth, 4, 0.5, channels=1, height=8, image_width=8, classes=3)
    with nowhere():
        networks = [make_network(shape, seed) for seed in (0, 1)]
    assert all(value.device.type == "cpu" for value in networks[0].state_dict().values())
    stack = StackedNetworks(networks, META)
    generators = [torch.Generator("cpu").manual_seed(seed) for seed in (0, 1)]
    theta = stack.theta.requires_grad_()
    images = torch.zeros(2, 1, 8, 8, 6, device=META)
    logits = stack.logits(theta, images, training=True, generators=generators)
    (gradient,) = torch.autograd.grad(logits.sum(), theta)
    assert (gradient.device, gradient.shape) == (META, theta.shape)
    assert stack.evaluate(torch.zeros(5, 1, 8, 8)).device == META
    column = torch.full((2,), 0.1, dtype=torch.float64)
    for name in OPTIMIZERS:
        StackedOptimizer(name, theta.detach(), column, column, column).step(theta.detach(), gradient)


@pytest.mark.parametrize("name", sorted(CORRUPTIONS.keys() - {"shot_noise", "jpeg"}))
def test_corruptions_follow_their_images(name: str) -> None:
    """Two of them go by the CPU, whose values "meta" cannot give: `torch.poisson` and Pillow."""
    changed = corrupt(torch.zeros(2, 3, 12, 10, dtype=torch.uint8, device=META), name, 3)
    assert (changed.device, changed.shape, changed.dtype) == (META, (2, 3, 12, 10), torch.uint8)


# -- degradations ------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training of a few steps: what is tested is where it happens."""
    monkeypatch.setattr(fgsm, "_STEPS", 3)
    monkeypatch.setattr(autoencoder, "_PIXELS", 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("method", METHODS)
def test_degrading(method: str) -> None:
    images = scenes(20, 32, 3, seed=4)
    task = DegradationTask(images.images, images.labels, seed=5)
    rows = torch.arange(20)
    fit = load_registry().get("degradations", method).item.fit

    def degraded() -> dict[str, Tensor]:
        dials = fit(task)
        found = {f"{dial.name}.{name}": value for dial in dials for name, value in dial.tensors.items()}
        for level, one in calibrate(dials, images, [0.9, 0.8, 1.0]).items():
            found[f"{level:g}"] = degrade(one.dial, one.strength, images.images, rows)
            found[f"strength {level:g}"] = torch.tensor([one.strength, one.achieved_mean_ssim], device="cpu")
        for dial in dials:
            found[dial.name] = degrade(dial, 0.6, images.images, rows)
        return found

    with nowhere():
        found = degraded()
    assert same(found, degraded())


def test_dials_follow_the_device(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted and turned on "meta", but for what needs values: JPEG, and fgsm's number of classes."""
    monkeypatch.setattr(fgsm, "remembering", lambda function: function)
    scene = scenes(20, 32, 3, seed=4)
    task, rows = DegradationTask(scene.images, scene.labels), torch.arange(20)
    with computing_on("meta"):
        dials = [
            dial
            for method in ("autoencoder", "gaussian", "blur")
            for dial in load_registry().get("degradations", method).item.fit(task)
        ]
    dials.append(fgsm._dial(fgsm.Surrogate(3, 2, 4).to(META)))
    assert len(dials) == 1 + 1 + 1 + 1
    for dial in dials:
        assert {value.device for value in dial.tensors.values()} <= {META}
        turned = dial.turn(scene.images.to(META).float() / 255, 0.5, rows)
        assert (turned.device, turned.shape) == (META, scene.images.shape)


# -- heads, evidence, cubes --------------------------------------------------------------------------


def features(seed: int, count: int) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("unseen_head", ["probe", "text", "prototype"])
def test_judging(unseen_head: str) -> None:
    labels = torch.arange(60) % 6
    centres = features(0, 6)
    given: dict[str, Any] = {
        "training": centres[labels] + features(1, 60),
        "training_labels": labels,
        "heldout": [centres[labels] + features(2, 60), centres[labels] + 2 * features(3, 60)],
        "heldout_labels": labels,
        "text": centres,
    }

    def judged() -> dict[str, Tensor]:
        return judge(
            **given, seen=4, zero_shot=[0, 2], penalty=1.0, threshold=0.3, unseen_head=unseen_head,
            prototype_images=3,
        )  # fmt: skip

    with nowhere():
        found = judged()
    assert same(found, judged())
    assert float(found["error"][0, 0, :4].mean()) < 0.5


def test_cube(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    parents = {name: tmp_path / name for name in ("a", "b", "heldout", "noise")}
    for folder in parents.values():
        folder.mkdir()
    for name, weights in (("a", 9), ("b", 5)):
        shapes = {"error": (2, 1, 3), "gap": (2, 1, 3), "kappa_conflict": (2, 1, 3), "kappa_cohen": (2, 1, 3)}
        values = {key: torch.rand(shape, generator=generator) for key, shape in shapes.items()}
        right = torch.zeros(2, 1, 4, dtype=torch.uint8)
        save_file({**values, "training_error": values["gap"][:, 0].clone(), "right": right},
                  parents[name] / "evidence.safetensors")  # fmt: skip
        write_sealed(parents[name] / "manifest.json", {"result": {"weights": weights}})
    save_file({"labels": torch.tensor([0, 1, 2, 0])}, parents["heldout"] / "images.safetensors")
    known = {"images": 4, "class_names": ["x", "y", "z"], "data_hash": "h", "shape": [1, 2, 2]}
    write_sealed(parents["heldout"] / "manifest.json", {"result": known})
    recipe = [{"ssim": 1.0, "dial": "d", "strength": 0.0, "achieved": 1.0}]
    write_sealed(parents["noise"] / "manifest.json", {"result": {"recipe": recipe}})
    inputs = CubeInputs(
        step=1, suite="s", quick=False, family="f", backbones=["a", "b"], seen=2, zero_shot=[0, 1],
        ssim=[1.0], dataset="d", settings={},
    )  # fmt: skip
    with nowhere():
        cube(inputs, parents, tmp_path)
    found = chosen_cube(tmp_path / CUBE_FILE, "conflict", ["a", "b"])
    assert found["weights"].values.tolist() == [5.0, 9.0]
    expected = load_file(parents["b"] / "evidence.safetensors")["error"][:, 0].double().mean(dim=1)
    assert found["error_mean"].values[:, 0, 0] == pytest.approx(expected.numpy(), abs=1e-6)


def test_the_check_itself_can_fail() -> None:
    def careless() -> Tensor:
        return torch.zeros(3) + torch.ones(3, device="cpu")

    with nowhere(), pytest.raises((RuntimeError, NotImplementedError)):
        careless().tolist()
    careful: Callable[[], Tensor] = lambda: torch.zeros(3, device="cpu")  # noqa: E731
    with nowhere():
        assert careful().tolist() == [0, 0, 0]
