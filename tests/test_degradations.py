"""Degradations hit every SSIM level of the paper, on any images, the same bits every time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from degradation_order import Material, Probe, spearman
from scipy.ndimage import gaussian_filter
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils._python_dispatch import TorchDispatchMode

from genbench.data.glyphs import DATASET
from genbench.data.images import TensorImages
from genbench.errors import ContractError, UserError
from genbench.plugin.offers import DataRequest, DegradationTask, Dial
from genbench.plugin.registry import Registry, Source, _register_own, load_registry
from genbench.testbed.degradations import DEFAULT, autoencoder, fgsm, networks
from genbench.testbed.degradations.calibrate import Calibrated, calibrate, degrade
from genbench.testbed.ssim import ssim

METHODS = ["autoencoder", "gaussian", "blur", "jpeg", "fgsm"]
# One worker fits a degradation for all its tests.
GROUPS = {name: pytest.mark.xdist_group(f"degradation {name}") for name in METHODS}
EACH = [pytest.param(name, marks=GROUPS[name]) for name in METHODS]
LEVELS = [0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
SETS = ["glyphs", "scenes"]


def scenes(count: int, size: int, channels: int, seed: int) -> TensorImages:
    """Pictures with smooth grounds, edges and texture: what photographs are made of."""
    generator = torch.Generator().manual_seed(seed)

    def field(cells: int) -> Tensor:
        values = torch.rand(count, channels, cells, cells, generator=generator)
        return interpolate(values, size=size, mode="bicubic").clamp(0, 1)

    edges = (field(6)[:, :1] > 0.5).float()
    images = edges * field(3) + (1 - edges) * (0.7 * field(4) + 0.3 * field(size // 2))
    labels = torch.arange(count) % 4
    return TensorImages((images * 255).round().clamp(0, 255).byte(), labels)


@cache
def letters() -> Material:
    """Of the classes that the networks of mini's evidence were adapted to."""
    return Material.of("glyphs", classes=50, train=27, heldout=8, side=None)


@cache
def images_of(name: str) -> tuple[DegradationTask, TensorImages]:
    """Training images as a task, and held-out images."""
    if name == "glyphs":
        data = DATASET.load(DataRequest())
        train, heldout = torch.arange(0, len(data.train), 2), torch.arange(0, len(data.heldout), 40)
        return (
            DegradationTask(data.train.batch(train), data.train.labels[train], seed=3),
            TensorImages(data.heldout.batch(heldout), data.heldout.labels[heldout]),
        )
    train_images = scenes(96, 64, 3, seed=1)
    return DegradationTask(train_images.images, train_images.labels, seed=3), scenes(48, 64, 3, seed=2)


@cache
def dials_of(method: str, images: str) -> Sequence[Dial]:
    """Fitted once for all tests, with shorter training: worse networks are no easier to calibrate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fgsm, "_STEPS", 60)
        patch.setattr(autoencoder, "_PIXELS", autoencoder._PIXELS // 8)
        task, _ = images_of(images)
        fit = load_registry().get("degradations", method).item.fit
        dials: Sequence[Dial] = fit(task)
        return dials


@cache
def calibration_of(method: str, images: str) -> dict[float, Calibrated]:
    return calibrate(dials_of(method, images), images_of(images)[1], LEVELS, method=method)


def scikit_image_ssim(first: Tensor, second: Tensor) -> float:
    values = [
        structural_similarity(
            a.double().numpy() / 255,
            b.double().numpy() / 255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=0,
        )
        for a, b in zip(first, second, strict=True)
    ]
    return float(np.mean(values))


def our_ssim(first: Tensor, second: Tensor) -> float:
    return ssim(first.float() / 255, second.float() / 255).double().mean().item()


@pytest.mark.parametrize("images", SETS)
@pytest.mark.parametrize("method", EACH)
def test_every_level_of_the_paper_is_met(method: str, images: str) -> None:
    _, heldout = images_of(images)
    rows = torch.arange(len(heldout))
    for level, found in calibration_of(method, images).items():
        degraded = degrade(found.dial, found.strength, heldout.images, rows)
        assert degraded.dtype == torch.uint8
        mean = our_ssim(heldout.images, degraded)
        assert mean == pytest.approx(level, abs=0.002)
        assert mean == pytest.approx(found.achieved_mean_ssim, abs=1e-5)
        sample = rows[::16]
        ours = our_ssim(heldout.images[sample], degraded[sample])
        assert scikit_image_ssim(heldout.images[sample], degraded[sample]) == pytest.approx(ours, abs=1e-4)
        if level == 1:
            assert torch.equal(degraded, heldout.images)


@pytest.mark.parametrize("images", SETS)
@pytest.mark.parametrize("method", EACH)
def test_ssim_falls_as_strength_rises(method: str, images: str) -> None:
    heldout = images_of(images)[1].images[:100]
    rows = torch.arange(len(heldout))
    for dial in dials_of(method, images):
        assert torch.equal(degrade(dial, 0.0, heldout, rows), heldout)
        strengths = [0.1, 0.2, 0.35, 0.5, 0.75, 1.0]
        means = [1.0, *(our_ssim(heldout, degrade(dial, s, heldout, rows)) for s in strengths)]
        assert all(weaker > stronger - 1e-3 for weaker, stronger in pairwise(means)), means


@pytest.mark.parametrize("images", SETS)
@pytest.mark.parametrize("method", EACH)
def test_batches_and_threads_do_not_change_a_bit(method: str, images: str) -> None:
    _, heldout = images_of(images)
    rows = torch.arange(0, len(heldout), max(1, len(heldout) // 70))
    pictures = heldout.images[rows]
    for dial in dials_of(method, images):
        whole = degrade(dial, 0.3, pictures, rows)
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        for size, count, threads in ((1, 5, 1), (7, 21, 2), (45, 70, 2)):
            torch.set_num_threads(threads)
            parts = [degrade(dial, 0.3, pictures[part], rows[part]) for part in order[:count].split(size)]
            torch.set_num_threads(1)
            assert torch.equal(torch.cat(parts), whole[order[:count]]), (dial.name, size)


@pytest.mark.parametrize("method", EACH)
def test_fitting_twice_gives_the_same_bits_and_disturbs_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fgsm, "_STEPS", 10)
    monkeypatch.setattr(autoencoder, "_PIXELS", 1)
    heldout = scenes(30, 32, 3, seed=4)
    task = DegradationTask(heldout.images, heldout.labels)
    fit = load_registry().get("degradations", method).item.fit
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = fit(task)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    torch.set_num_threads(2)
    second = fit(task)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    for a, b in zip(first, second, strict=True):
        assert a.name == b.name
        assert a.tensors.keys() == b.tensors.keys()
        assert all(torch.equal(a.tensors[key], b.tensors[key]) for key in a.tensors)
    calibrations = [calibrate(dials, heldout, [0.7, 0.9]) for dials in (first, second)]
    settings = [[(c.dial.name, c.strength, c.achieved_mean_ssim) for c in x.values()] for x in calibrations]
    assert settings[0] == settings[1]


@pytest.mark.parametrize("method", ["gaussian", "jpeg", "fgsm", "autoencoder"])
def test_seed_matters(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fgsm, "_STEPS", 2)
    monkeypatch.setattr(autoencoder, "_PIXELS", 1)
    heldout = scenes(30, 32, 3, seed=4)
    fit = load_registry().get("degradations", method).item.fit
    tasks = [DegradationTask(heldout.images, heldout.labels, seed) for seed in (0, 2)]
    results = [degrade(fit(task)[0], 0.505, heldout.images, torch.arange(30)) for task in tasks]
    assert not torch.equal(*results)


@pytest.mark.parametrize("method", EACH)
@pytest.mark.parametrize(("size", "channels"), [(45, 1), (224, 3)])
def test_other_sizes_and_grey_images(
    method: str, size: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fgsm, "_STEPS", 10)
    monkeypatch.setattr(autoencoder, "_PIXELS", 1)
    train, heldout = scenes(16, size, channels, seed=5), scenes(10, size, channels, seed=6)
    dials = load_registry().get("degradations", method).item.fit(DegradationTask(train.images, train.labels))
    found = calibrate(dials, heldout, [0.8])[0.8]
    degraded = degrade(found.dial, found.strength, heldout.images, torch.arange(10))
    assert our_ssim(heldout.images, degraded) == pytest.approx(0.8, abs=0.01)


@cache
def probes() -> list[Probe]:
    names = ("mini-clip:short6", "mini-efficientnet:b0", "mini-efficientnet:b3")
    return [Probe(name, letters().training) for name in names]


LETTERS = {"autoencoder": 100, "gaussian": 400, "blur": 100, "jpeg": 200, "fgsm": 200}


@pytest.mark.parametrize(
    ("method", "count"), [pytest.param(*one, marks=GROUPS[one[0]]) for one in LETTERS.items()]
)
def test_networks_err_more_at_lower_levels(method: str, count: int) -> None:
    """Adapted networks of mini's evidence, on more letters where a degradation harms less."""
    rows = torch.arange(0, len(letters().heldout), len(letters().heldout) // count)
    images, labels = letters().heldout.images[rows], letters().heldout.labels[rows]
    settings = calibration_of(method, "glyphs").values()
    levels = [degrade(found.dial, found.strength, images, rows) for found in settings]
    for probe in probes():
        errors = [probe.error(degraded, labels) for degraded in levels]
        assert spearman(errors) <= -0.9, (probe.backbone.name, errors)


def noise_deviations(images: Tensor, k: float) -> Tensor:
    """√(k²·d² + k⁴·.01²), by SciPy: d² is the mean over channels of the variance around a pixel."""

    def means(values: Any) -> Any:
        inside = gaussian_filter(values, sigma=(0, 0, 1.5, 1.5), mode="constant", truncate=20)
        ones = np.ones_like(values)
        return inside / gaussian_filter(ones, sigma=(0, 0, 1.5, 1.5), mode="constant", truncate=20)

    values = images.double().numpy()
    variances = (means(values**2) - means(values) ** 2).mean(axis=1, keepdims=True)
    return torch.from_numpy(np.sqrt(k**2 * variances + (0.01 * k**2) ** 2))


@pytest.mark.parametrize("method", [pytest.param(name, marks=GROUPS[name]) for name in ("gaussian", "fgsm")])
def test_noise_is_in_proportion_to_contrast(method: str) -> None:
    (dial,) = dials_of(method, "glyphs")
    # So faint that nothing is clipped.
    images = images_of("glyphs")[1].images[:100].float() / 255 * 0.2 + 0.4
    for strength, k in ((0.2, 0.32), (0.3, 0.72)):
        change = dial.turn(images, strength, torch.arange(100)) - images
        noise = change / noise_deviations(images, k)
        if method == "fgsm":
            # Up or down, by no label: only pixels, which were all that the dial was given.
            assert noise.abs().quantile(0.01).item() == pytest.approx(1, abs=0.01)
            assert noise.abs().max().item() == pytest.approx(1, abs=0.01)
        else:
            assert noise.std().item() == pytest.approx(1, abs=0.01)
            assert noise.mean().item() == pytest.approx(0, abs=0.01)


def test_unreachable_level_is_one_sentence() -> None:
    _, heldout = images_of("glyphs")
    gentle = Dial("gentle", lambda images, strength, rows: images.lerp(images.flip(-1), 0.05 * strength))
    with pytest.raises(
        UserError, match=r"^degradation 'mine' cannot reach a mean SSIM of 0\.6 .* full strength gives 0\.9"
    ):
        calibrate([gentle], heldout, [0.6], method="mine")


def test_level_that_is_jumped_over_is_one_sentence() -> None:
    _, heldout = images_of("glyphs")
    switch = Dial("switch", lambda images, strength, rows: 1 - images if strength > 0.4 else images)
    with pytest.raises(UserError, match=r"^degradation 'switch' cannot be set to .* jumps over"):
        calibrate([switch], heldout, [0.8])


@pytest.mark.parametrize(
    "turn",
    [
        lambda images, strength, rows: images[:, :, 1:],
        lambda images, strength, rows: images + 2,
        lambda images, strength, rows: images * torch.nan,
        lambda images, strength, rows: None,
    ],
)
def test_dial_that_breaks_the_contract_is_named(turn: Callable[[Tensor, float, Tensor], Tensor]) -> None:
    with pytest.raises(ContractError, match="dial 'broken'"):
        calibrate([Dial("broken", turn)], images_of("scenes")[1], [0.8])


def test_what_cannot_be_measured_is_said() -> None:
    dials = dials_of("gaussian", "glyphs")
    tiny = TensorImages(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(UserError, match="at least 11 × 11 pixels"):
        calibrate(dials, tiny, [0.8])
    assert calibrate(dials, tiny, [1.0])[1.0].strength == 0
    with pytest.raises(UserError, match=r"SSIM level is above 0 and at most 1, not 1\.2"):
        calibrate(dials, tiny, [1.2])
    with pytest.raises(UserError, match="no held-out images"):
        calibrate(dials, TensorImages(tiny.images[:0], tiny.labels[:0]), [0.8])
    with pytest.raises(ContractError, match="at least one dial"):
        calibrate([], tiny, [0.8])


def test_only_images_of_the_batch_are_read() -> None:
    """Images come in batches that bound the memory, and in no more passes than the search needs."""
    _, heldout = images_of("scenes")
    asked: list[int] = []

    class Watched:
        def __len__(self) -> int:
            return len(heldout)

        def batch(self, indices: Tensor) -> Tensor:
            asked.append(len(indices))
            return heldout.batch(indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genbench.testbed.degradations.calibrate._VALUES", 40 * 3 * 64 * 64)
        calibrate(dials_of("blur", "scenes"), Watched(), LEVELS)
    assert max(asked) == 40
    assert sum(asked) <= 8 * len(heldout)


PLUGIN = """
import genbench
from genbench.plugin.offers import Degradation, Dial

def fit(task):
    mean = task.images.float().mean(dim=0) / 255
    return [Dial("fade", lambda images, strength, rows: images.lerp(mean, strength), {"mean": mean})]

@genbench.hookimpl
def genbench_degradations():
    return [Degradation("fade", "towards the mean training image", fit)]
"""


def test_degradation_of_a_third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fading.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry()
    _register_own(registry, Source("package", "fading", "genbench-fading", "1", module="fading"))
    assert registry.plugins[0].problems == []
    task, heldout = images_of("glyphs")
    dials = registry.get("degradations", "fade").item.fit(task)
    for level, found in calibrate(dials, heldout, LEVELS).items():
        degraded = degrade(found.dial, found.strength, heldout.images, torch.arange(len(heldout)))
        assert our_ssim(heldout.images, degraded) == pytest.approx(level, abs=0.002)


def test_listing_them_imports_no_torch() -> None:
    code = (
        "import sys, json; from genbench.plugin.registry import load_registry;"
        "names = list(load_registry().degradations); print(json.dumps([names, 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [METHODS, False]
    assert METHODS[0] == DEFAULT


class _LargestFloats(TorchDispatchMode):
    """Bytes of the largest floating-point tensor that anything makes."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(one, Tensor) and one.is_floating_point():
                self.largest = max(self.largest, one.nbytes)
        return result


@pytest.mark.parametrize("method", EACH)
def test_memory_does_not_grow_with_the_training_set(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 images, no more than a batch of 64 are floats at a time; degraded, no more than a few."""
    monkeypatch.setattr(fgsm, "_STEPS", 2)
    monkeypatch.setattr(autoencoder, "_PIXELS", 1)
    monkeypatch.setattr(networks, "_AT_ONCE", 2**20)
    monkeypatch.setattr("genbench.testbed.degradations.calibrate._VALUES", 2**18)
    some = scenes(40, 96, 3, seed=1)
    task = DegradationTask(some.images.repeat(10, 1, 1, 1), some.labels.repeat(10))
    with _LargestFloats() as floats:
        dials = load_registry().get("degradations", method).item.fit(task)
    assert floats.largest <= 4 * task.images.numel() / 6
    with _LargestFloats() as floats:
        for dial in dials:
            degrade(dial, 0.5, task.images[:80], torch.arange(80))
    assert floats.largest <= 4 * task.images.numel() / 8


def test_the_mean_colour_has_the_same_bits_image_by_image(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (500, 3, 40, 33), generator=torch.Generator().manual_seed(0)).byte()
    at_once = images.float().mean(dim=(0, 2, 3))
    monkeypatch.setattr(networks, "_AT_ONCE", 2**16)
    assert torch.equal(networks.mean_colour(images), at_once)
    grey = networks.mean_colour(images[:, :1])
    assert grey.item() == pytest.approx(images[:, 0].double().mean().item(), rel=1e-5)
