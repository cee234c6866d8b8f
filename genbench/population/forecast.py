"""How long, how large: what stacks of networks will take, from their shapes and a short probe of three.

A step of training takes, per network of a stack,

    seconds = LAYER · depth + PIXEL · batch · width · depth · places

where places are those of an image in the first layer: fitted to the 62 stacks of `nin-fashion`, of which it
says each within a factor of 2 to 3 and the sum within 1.3. Where more than a minute is at stake, the probe
trains the smallest, the middle and the largest stack for a few steps and corrects the scale.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import exp, log
from pathlib import Path

import msgspec

from genbench.engine.cells import Cell, NetworkCells
from genbench.plugin.registry import load_registry
from genbench.population.plan import BLOCK, HELDOUT, JUDGED, SHIFTS, TRAINING
from genbench.population.step_types import BlockInputs, NetworkShape, Shape
from genbench.population.suite import PopulationSuite
from genbench.suites.plan import CellForecast, TrainingPass

__all__ = ["forecast_cells", "training_pass"]

_LAYER_SECONDS = 1.1e-4
_PIXEL_SECONDS = 3.2e-9
"""Processor seconds of one core of the machine that the stacks of `nin-fashion` were timed on."""
_EPOCHS_NEEDED = 0.25
"""Share of the epochs that a network needs to its stopping rule, where their number is only a cap."""
_FORWARD = 1 / 3
"""Of a step of training."""
_WORTH_A_PROBE = 60.0
"""Seconds of one core in all: a probe takes some seconds, most of them to import torch."""
_PROCESS = 215 * 2**20
_STACK_BYTES = 6.0
"""Per network, image, width and place: of the images that are evaluated at once, and of a batch per layer."""
_EVALUATED = 500
_SIDE, _HELDOUT = 32, 10_000
"""Of a data set that does not say."""
_IMAGES = {
    "digits": (1078, 719),
    "fashion14": (1000, 10_000),
    "glyphs": (5400, 4200),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
}
"""For training, and held out: as published, because opening a data set takes longer than a plan should."""
_HELDOUT_SHARE = 0.2
"""Of a folder of domains."""
_ALONE = 4.5
"""How many times what it costs in a stack a network costs alone, as measures read it: counted in forward
passes of the networks of `nin-fashion` over their training images."""
_KEPT_BYTES = 9.0
"""That a forward pass keeps of an image, per channel and place of the image: a NiN halves its sides."""
_READER = 240 * 2**20
"""Bytes of a process that has loaded a network to be read."""
_PROBED_BATCHES, _PROBED_EPOCHS = 6, 2
_PROBE_SECONDS = 3.0
"""Of one stack, about: fewer batches of large ones, and fewer networks of the largest."""


def forecast_cells(suite: PopulationSuite, cells: Iterable[Cell]) -> dict[str, CellForecast]:
    """Key to what a cell will take."""
    cells = list(cells)
    # Of evidence too: it stands for its stack, which may be stored.
    blocks = {cell.key: msgspec.convert(cell.inputs, BlockInputs) for cell in cells if cell.step == BLOCK}
    total = sum(_training_seconds(one) for one in blocks.values())
    scale = _scale(blocks.values()) if total > _WORTH_A_PROBE else 1.0
    judged = _judged_seconds(suite)
    found = {}
    for cell in cells:
        if cell.step == BLOCK:
            found[cell.key] = _block(blocks[cell.key], scale)
        elif cell.step == JUDGED:
            block = blocks.get(cell.parents["block"])
            found[cell.key] = _evidence(suite, block, scale) if block else CellForecast(judged * scale)
        elif cell.step in (TRAINING, HELDOUT, SHIFTS):
            found[cell.key] = CellForecast(
                1.0, disk_bytes=_HELDOUT * _places(suite.data.dataset), memory_bytes=_PROCESS
            )
    return found


def training_pass(suite: PopulationSuite, network: NetworkCells) -> TrainingPass:
    """All training images of a network, once forward and backward, alone."""
    point = suite.settings(network.hyperparameters)
    batch, images = int(point.batch_size), int(point.train_size)
    depth, width = int(point.depth), int(point.width)
    shape = NetworkShape(point.architecture, depth, width, point.dropout)
    seconds = _ALONE * _step_seconds(shape, batch, point.dataset) * images / batch
    kept = int(_KEPT_BYTES * width * _places(point.dataset))
    return TrainingPass(seconds, images, 11 * width**2 * depth, kept, _READER)


# -- the model -----------------------------------------------------------------------------------------------


def _places(dataset: str | None) -> int:
    if dataset is None:
        return _SIDE**2
    found = load_registry().resolve("datasets", dataset)[0].item.image_size
    return int(found[1] * found[2]) if found else _SIDE**2


def _step_seconds(shape: NetworkShape, batch: int, dataset: str) -> float:
    """Of one network, for one batch."""
    places, width = _places(dataset), int(shape.width)
    if shape.architecture == "fcn":
        places = 1
    elif shape.architecture in ("resnet", "resnetv2"):
        places *= 2
    # Products of matrices take over where layers are wide.
    work = batch * width * max(1.0, width / 64) * int(shape.depth) * places
    return _LAYER_SECONDS * int(shape.depth) + _PIXEL_SECONDS * work


def _epochs(block: BlockInputs) -> float:
    most = block.recipe.max_epochs
    return float(most) if block.recipe.stop == "epochs" else max(1.0, most * _EPOCHS_NEEDED)


def _training_seconds(block: BlockInputs) -> float:
    batch, images = int(block.recipe.batch_size), int(block.choice.train_size)
    step = _step_seconds(block.shape, batch, block.choice.dataset)
    return len(block.networks) * _epochs(block) * -(-images // batch) * step


def _block(block: BlockInputs, scale: float) -> CellForecast:
    images, networks = int(block.choice.train_size), len(block.networks)
    seconds = 0.5 + scale * _training_seconds(block)
    passes = int(networks * images * _epochs(block))
    width, places = int(block.shape.width), _places(block.choice.dataset)
    held = min(images, _EVALUATED) + int(block.recipe.batch_size) * int(block.shape.depth)
    memory = _PROCESS + int(_STACK_BYTES * networks * width * places * held)
    weights = 9 * width * width * (int(block.shape.depth) + 1) * 3
    return CellForecast(seconds, passes, 8 * networks * weights, memory)


def _heldout_images(suite: PopulationSuite, dataset: str) -> int:
    """Of all domains, where there are several."""
    data = suite.data
    item, argument = load_registry().resolve("datasets", dataset)
    train, held = _in_folder(Path(argument).expanduser()) if argument else _IMAGES.get(dataset, (0, _HELDOUT))
    if data.training_pool is not None:  # what is not for training is held out too
        held += max(0, train - data.training_pool)
    if data.classes is not None and item.item.classes:
        held = round(held * min(1.0, data.classes / item.item.classes))
    return min(held, data.heldout_size or held)


def _in_folder(root: Path) -> tuple[int, int]:
    """(for training, held out): of <domain>/<class>/*, or of train/<class>/* and test/<class>/*."""
    held = sum(1 for _ in root.glob("test/*/*"))
    files = sum(1 for _ in root.glob("*/*/*"))
    held = held or round(_HELDOUT_SHARE * files)
    return files - held, held


def _evaluated_images(suite: PopulationSuite, dataset: str) -> int:
    held = _heldout_images(suite, dataset)
    shifted = (suite.data.shifted_images or held) * len(suite.data.corruptions or ())
    return int(held + shifted * len(suite.data.severities or range(5)))


def _evidence(suite: PopulationSuite, block: BlockInputs, scale: float) -> CellForecast:
    images, batch = _evaluated_images(suite, block.choice.dataset), 500
    step = _step_seconds(block.shape, batch, block.choice.dataset)
    passes = images * len(block.networks)
    memory = _block(block, scale).memory_bytes
    return CellForecast(0.3 + scale * _FORWARD * step * passes / batch, passes, passes // 8, memory)


def _judged_seconds(suite: PopulationSuite) -> float:
    """Of evidence whose stack is stored already."""
    return JUDGED.seconds


# -- the probe -----------------------------------------------------------------------------------------------


def _scale(blocks: Iterable[BlockInputs]) -> float:
    """How many times longer than by the constants above a step takes here, in processor time."""
    by_size = sorted(
        blocks, key=lambda one: _step_seconds(one.shape, int(one.recipe.batch_size), one.choice.dataset)
    )
    chosen = {id(one): one for one in (by_size[0], by_size[len(by_size) // 2], by_size[-1])}
    ratios = [_probed(one) for one in chosen.values()]
    return exp(sum(map(log, ratios)) / len(ratios))


def _probed(block: BlockInputs) -> float:
    """On random images: those of the data set need not be here, and take longer to open."""
    import torch

    from genbench.population.networks import make_network
    from genbench.population.stacked_training import train_stacked
    from genbench.subject.inputs import Inputs

    item = load_registry().resolve("datasets", block.choice.dataset)[0].item
    classes = item.classes or 10
    channels, height, width = item.image_size or (3, _SIDE, _SIDE)
    shape = Shape(
        **msgspec.structs.asdict(block.shape),
        channels=channels,
        height=height,
        image_width=width,
        classes=classes,
    )
    batch = int(block.recipe.batch_size)
    step = _step_seconds(block.shape, batch, block.choice.dataset)
    # All of the stack, where that is quick: half of it would take more than half the time.
    steps = _PROBE_SECONDS / (2 * (1 + _PROBED_EPOCHS) * step)
    members = block.networks[: max(1, int(steps))]
    batches = min(_PROBED_BATCHES, max(1, int(steps / len(members))))
    images = torch.rand(batches * batch, channels, height, width, device="cpu")
    labels = torch.arange(len(images), device="cpu") % classes
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def seconds(epochs: int) -> float:
        networks = [make_network(shape, one.init_seed) for one in members]
        recipe = msgspec.structs.replace(block.recipe, max_epochs=epochs, stop="epochs")
        began = time.process_time()
        train_stacked(networks, Inputs(images), labels, recipe, members)
        return time.process_time() - began

    try:
        seconds(1)  # warms up
        each = (seconds(1 + _PROBED_EPOCHS) - seconds(1)) / _PROBED_EPOCHS  # without what comes before
    finally:
        torch.set_num_threads(threads)
    return max(each, 1e-6) / (len(members) * batches * step)
