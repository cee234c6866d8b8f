"""How long, how large: what the cells of a testbed will take on this machine, from a short probe.

Each backbone that is on this machine runs a small batch forward and a training step; one that is not is
judged by its published size. Accurate to a factor of two, which is what a plan needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from genbench.engine.cells import Cell, NetworkCells
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.plugin.registry import load_registry
from genbench.suites.plan import CellForecast, TrainingPass
from genbench.testbed.suite import TestbedSuite

__all__ = ["Speed", "core_rate", "forecast_cells", "image_counts", "probe", "training_pass"]

_PIXELS = 32 * 32 * 32
"""In a batch of the probe: 32 small images, or two large ones."""
_MULTIPLICATIONS_PER_WEIGHT = 120
"""Of a convolutional backbone on a 224-pixel image; between 74 (EfficientNet-b0) and 160 (CLIP RN50)."""
_TRAINING_FACTOR = 3.0
_LEAST_SECONDS = 5e-4
"""Of an image, forward and backward, through the smallest of backbones: calls, not multiplications."""
_HEAD_SECONDS = 2.6e-8
"""Of all heads of a backbone, per image × class × feature, on the machine of `_REFERENCE_RATE`."""
_AUTOENCODER_SECONDS = 15.0
"""Of its training, which sees as many pixels whatever the images are."""
_REFERENCE_RATE = 3.0e10
"""Multiplications a second of one core, as `core_rate` measures them, where these constants were taken."""
_KEPT = 78 * 2**20
"""Bytes that a training step of EfficientNet-Lite0 (`_KEPT_WEIGHTS`) keeps of an image of 224 pixels."""
_KEPT_WEIGHTS = 4_652_008
_PROCESS = 2**28
"""Bytes of a process with torch and a small network."""
_READER = 340 * 2**20
"""Bytes of a process that has loaded a small network to be read."""
_LOOSE = 1.25
"""What a heap holds of what a step of training needs: free pieces between others cannot be given back."""
_EPOCHS_NEEDED = 0.13
"""Share of the epochs that an adaptation needs to reach a given loss, where their number is only a cap: 10.4
of 80 in the mean over the training images of all networks of `mini`."""
_SEARCHED = 8
"""Looks at all training images until the network with the given loss is found; see `loss_target`."""
_NOMINAL_COUNTS = {
    "glyphs": (54, 42),
    "cifar100": (500, 100),
    "cifar10": (5000, 1000),
    "imagenet100": (1300, 50),
}
"""Training and held-out images per class of data sets that may not be on this machine."""
_SHAPE = (3, 256, 256)
"""Of an image where nothing says."""


@dataclass(frozen=True)
class Speed:
    """What one backbone needs on one core."""

    forward: float
    """Seconds per image."""
    training: float
    """Seconds per image and epoch."""
    feature_width: int
    side: int
    weights: int
    kept: int
    """Bytes that a training step keeps of one image until its backward pass."""
    measured: bool


_PROBED: dict[str, Speed] = {}
"""Backbones that this process has timed: readings are told from them too, and need no probe of their own."""


def image_counts(suite: TestbedSuite) -> dict[str, int]:
    """Images of the seen and unseen classes' training sets and of the held-out set; bytes of an image."""
    data = suite.data
    entry, argument = load_registry().resolve("datasets", data.dataset)
    if entry.item.available(DataRequest(argument=argument, seed=data.seed)).ready:
        from genbench.testbed.images import load_data

        # Which says so if there are too few classes.
        loaded = load_data(data.dataset, data.seen, data.unseen, data.seed)
        per_class = [
            _per_class(split.labels.numel(), len(loaded.class_names))
            for split in (loaded.train, loaded.heldout)
        ]
        # Only the files can tell how large those of a folder are.
        shape = tuple(loaded.train.batch([0]).shape[1:]) if len(loaded.train) else _SHAPE
    else:
        per_class = list(_NOMINAL_COUNTS.get(entry.item.name, (100, 50)))
        shape = entry.item.image_size or _SHAPE
    if data.image_side:
        shape = (shape[0], data.image_side, data.image_side)
    train = min(per_class[0], data.train_per_class or per_class[0])
    heldout = min(per_class[1], data.heldout_per_class or per_class[1])
    seen, unseen = data.seen, data.unseen
    return {
        "seen": train * seen,
        "unseen": train * unseen,
        "heldout": heldout * (seen + unseen),
        "bytes": prod(shape),
    }


def _per_class(images: int, classes: int) -> int:
    return -(-images // max(1, classes))


def probe(names: Iterable[str], rate: float | None = None) -> dict[str, Speed]:
    """Time every backbone; a few seconds in all for networks of the mini families.

    rate : what `core_rate` gave before, for backbones that are not here; by default it is measured now.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        known = rate or core_rate()
        _PROBED.update((name, _speed(name, known)) for name in names)
        return {name: _PROBED[name] for name in names}
    finally:
        torch.set_num_threads(threads)


def _speed(name: str, rate: float) -> Speed:
    entry, argument = load_registry().resolve("backbones", name)
    item, request = entry.item, BackboneRequest(argument=argument)
    side = item.image_size or 224
    if not item.available(request).ready:
        weights = item.weight_count or 30_000_000
        guess = _multiplications(weights, side) / rate
        kept, width = _kept_bytes(weights, side), item.feature_width or 1024
        return Speed(guess, guess * _TRAINING_FACTOR, width, side, weights, kept, measured=False)
    import torch
    from torch.optim.adamw import adamw

    from genbench.subject.inputs import Inputs
    from genbench.subject.subject import TrainedNetwork
    from genbench.testbed.adaptation import AdaptedNetwork

    backbone = item.load(request)
    network = AdaptedNetwork(backbone.module, backbone.feature_width, 50, 0)
    batch = max(2, _PIXELS // side**2)
    images = backbone.preprocess(
        torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, device="cpu")
    )
    labels = torch.arange(batch, device="cpu") % 50
    weights = list(network.parameters())
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    steps = [torch.zeros(()) for _ in weights]

    def forward() -> None:
        with torch.inference_mode():
            network(images)

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
        # The function behind torch.optim.AdamW, which imports torch's compiler: a second for every plan.
        with torch.no_grad():
            adamw(
                weights, list(gradients), means, squares, [], steps,
                amsgrad=False, beta1=0.9, beta2=0.999, lr=0.0, weight_decay=0.0, eps=1e-8, maximize=False,
            )  # fmt: skip

    network.eval()
    kept = TrainedNetwork(name, network, None, Inputs(images), labels, 50).bytes_per_example
    forward_seconds = _timed(forward) / batch
    network.train()
    return Speed(
        forward_seconds,
        _timed(step) / batch,
        backbone.feature_width,
        side,
        backbone.weight_count,
        kept,
        measured=True,
    )


def _timed(work: Callable[[], None]) -> float:
    """The better of two, after one to warm up; of the processor, which others may be using too."""
    work()
    found = []
    for _ in range(2):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def core_rate() -> float:
    """Multiplications a second in a convolution, on one core."""
    import torch

    images, kernel = torch.rand(8, 64, 28, 28, device="cpu"), torch.rand(64, 64, 3, 3, device="cpu")

    def convolve() -> None:
        torch.nn.functional.conv2d(images, kernel, padding=1)

    return 8 * 64 * 64 * 9 * 28 * 28 / _timed(convolve)


def forecast_cells(
    suite: TestbedSuite, cells: Iterable[Cell], speeds: Mapping[str, Speed], counts: Mapping[str, int]
) -> dict[str, CellForecast]:
    """What each of `cells` will take, by key; kinds that are no part of a testbed are left out."""
    found = {}
    for cell in cells:
        forecast = _FORECASTS.get(cell.step.name)
        if forecast is not None:
            speed = speeds.get(str(cell.inputs.get("backbone", "")))
            found[cell.key] = forecast(suite, cell, speed, counts)
    return found


def training_pass(suite: TestbedSuite, network: NetworkCells) -> TrainingPass:
    """All images of the seen classes once forward and backward: as probed, if evidence was, else by the
    published size of the backbone."""
    name = str(network.hyperparameters["backbone"])
    images = int(_seen_images(suite) * float(network.hyperparameters.get("train_share", 1.0)))
    if name in _PROBED:
        one = _PROBED[name]
        return TrainingPass(images * one.training, images, one.weights, one.kept, _READER)
    item = load_registry().resolve("backbones", name)[0].item
    weights, side = item.weight_count or 30_000_000, item.image_size or 224
    seconds = _LEAST_SECONDS + _multiplications(weights, side) * _TRAINING_FACTOR / _REFERENCE_RATE
    return TrainingPass(images * seconds, images, weights, _kept_bytes(weights, side), _READER)


def _multiplications(weights: int, side: int) -> float:
    """Of an image of its own size. Backbones for smaller images than 224 halve them less often."""
    return weights * _MULTIPLICATIONS_PER_WEIGHT * max(1.0, side / 224) ** 2


def _kept_bytes(weights: int, side: int) -> int:
    """Layers and widths both grow with the weights, activations with the root of their product."""
    return int(_KEPT * (side / 224) ** 2 * (weights / _KEPT_WEIGHTS) ** 0.5)


def _seen_images(suite: TestbedSuite) -> int:
    """Without opening the data set."""
    name = suite.data.dataset
    each = _NOMINAL_COUNTS.get(name, (100, 50))[0]
    return min(each, suite.data.train_per_class or each) * suite.data.seen


def _images(suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]) -> CellForecast:
    size = counts[cell.inputs["part"]] * counts["bytes"]
    # Data sets of small images are read whole, a byte a value; what is chosen is written part by part.
    return CellForecast(1.0 + size / 2**28, disk_bytes=size, memory_bytes=_PROCESS + min(size, 2**29))


def _noise(suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]) -> CellForecast:
    levels, pixels = len(suite.testbed.ssim) - 1, counts["heldout"] * counts["bytes"]
    fitting = _AUTOENCODER_SECONDS if suite.testbed.degradation == "autoencoder" else 5.0
    # Calibration degrades and compares every held-out image a few times at each level.
    learnt = min(3000, counts["seen"] + counts["unseen"]) * counts["bytes"]
    return CellForecast(
        fitting + 3e-7 * pixels * levels,
        disk_bytes=pixels * (levels + 1),
        memory_bytes=_PROCESS + 5 * learnt + 2**28,
    )


def _adapted(suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]) -> CellForecast:
    assert speed is not None
    own = cell.inputs
    images = int(counts["seen"] * own.get("train_share", 1))
    each = speed.forward if own["method"] == "frozen" else speed.training
    epochs, looks = own["epochs"], 0.0
    if own.get("stop") == "evaluation":
        # Set so that none is stopped by them; and all images are looked at after every one.
        epochs = max(1.0, epochs * _EPOCHS_NEEDED)
        looks = epochs + _SEARCHED
    passes = int(images * (epochs + looks))
    seconds = images * (epochs * each + looks * speed.forward)
    # A frozen backbone keeps nothing, but runs as large a batch at the end as features are taken in.
    step = speed.kept * own["batch_size"] * _LOOSE if own["method"] == "finetune" else 0
    # Weights, gradients, both moments of AdamW, the sum of an epoch's gradients; what was loaded.
    memory = _PROCESS + speed.weights * 4 * 6 + int(max(step, _features_bytes(speed)))
    return CellForecast(1.0 + seconds, passes, speed.weights * 2, memory)


def _features(
    suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]
) -> CellForecast:
    assert speed is not None
    images = counts["heldout"] if cell.inputs["level"] is not None else counts["seen"] + counts["unseen"]
    size = images * speed.feature_width * 4
    memory = _PROCESS + speed.weights * 4 * 2 + _features_bytes(speed)
    return CellForecast(0.3 + images * speed.forward, images, size, memory)


def _features_bytes(speed: Speed) -> int:
    """Of a forward pass of as many images as `steps` takes: a tenth of what their backward passes keep."""
    return min(64, max(1, 2**22 // (3 * speed.side**2))) * speed.kept // 10


def _evidence(
    suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]
) -> CellForecast:
    assert speed is not None
    training = counts["seen"] + counts["unseen"]
    classes = suite.data.seen + suite.data.unseen
    levels = len(suite.testbed.ssim) * len(suite.testbed.zero_shot)
    work = training * classes * speed.feature_width
    return CellForecast(
        1.0 + _HEAD_SECONDS * work + 1e-8 * levels * counts["heldout"] * classes,
        disk_bytes=levels * counts["heldout"],
        memory_bytes=(training + counts["heldout"] * len(suite.testbed.ssim)) * speed.feature_width * 8,
    )


def _network_evidence(
    suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]
) -> CellForecast:
    """Features of all levels, which are held in memory, and the evidence."""
    assert speed is not None
    images = counts["seen"] + counts["unseen"] + counts["heldout"] * len(suite.testbed.ssim)
    judged = _evidence(suite, cell, speed, counts)
    return CellForecast(
        judged.seconds + images * speed.forward,
        images,
        judged.disk_bytes,
        _PROCESS + _features_bytes(speed) + judged.memory_bytes,
    )


def _small(suite: TestbedSuite, cell: Cell, speed: Speed | None, counts: Mapping[str, int]) -> CellForecast:
    return CellForecast(2.0, disk_bytes=2**20, memory_bytes=2**28)


_FORECASTS: dict[str, Callable[[TestbedSuite, Cell, Speed | None, Mapping[str, int]], CellForecast]] = {
    "images": _images,
    "noise": _noise,
    "adapted": _adapted,
    "features": _features,
    "testbed_evidence": _evidence,
    "network_evidence": _network_evidence,
    "cube": _small,
    "tradeoff": _small,
    "unpacked": lambda suite, cell, speed, counts: CellForecast(0.1, disk_bytes=2**20),
}
