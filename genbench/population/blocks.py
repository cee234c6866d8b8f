"""The cells of a population: blocks of networks trained at once, and their evidence; a network of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from msgspec.structs import asdict
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from genbench.data.tensor_file import read_row
from genbench.engine.compute import compute_device
from genbench.engine.steps import read_result
from genbench.population.calibration import calibration_errors
from genbench.population.memory import keep_freed_memory
from genbench.population.networks import make_network, plan_network
from genbench.population.pools import (
    TrainingSet,
    heldout_images,
    shifted_images,
    standardised,
    training_set,
)
from genbench.population.stacked import StackedNetworks
from genbench.population.stacked_training import StackedTraining, train_stacked, training_fit
from genbench.population.step_types import (
    BlockInputs,
    BlockResult,
    Choice,
    JudgedResult,
    JudgeInputs,
    Shape,
    TrainedSummary,
)
from genbench.subject.module_copies import with_state
from genbench.subject.precision import wide
from genbench.subject.subject import TrainedNetwork

__all__ = ["judge_block", "load_member", "train_block"]

_CONVERGED = 0.99
"""SPEC section 2: neither its stopping rule nor this training accuracy makes a run unconverged."""


def train_block(inputs: BlockInputs, parents: Mapping[str, Path], out: Path) -> BlockResult:
    """Train all networks of a block at once; store their weights before and after, and their traces."""
    keep_freed_memory()
    device = compute_device()
    data = training_set(parents["training"], inputs.choice)
    _, channels, height, width = data.raw.shape
    shape = Shape(
        **asdict(inputs.shape), channels=channels, height=height, image_width=width, classes=data.classes
    )
    networks = [make_network(shape, one.init_seed) for one in inputs.networks]
    _save_states([dict(network.state_dict()) for network in networks], out / "initial.safetensors")
    trained = train_stacked(
        networks, data.inputs(device), data.labels.to(device), inputs.recipe, inputs.networks
    )
    ends = [_End(one.state, one.loss[-1], one.accuracy[-1]) for one in trained]
    if inputs.half:
        ends = _rounded(ends, shape, data, device)
    _save_states([end.state for end in ends], out / "final.safetensors")
    traces = {f"{i}.{name}": value for i, one in enumerate(trained) for name, value in one.trace().items()}
    save_file(traces, out / "trace.safetensors")
    return BlockResult(
        shape=shape,
        choice=inputs.choice,
        mean=data.mean,
        std=data.std,
        parameters=sum(p.numel() for p in networks[0].parameters()),
        networks=[_summary(one, end) for one, end in zip(trained, ends, strict=True)],
    )


@dataclass(frozen=True)
class _End:
    """A network after training, and its training loss and accuracy."""

    state: dict[str, Tensor]
    loss: float
    accuracy: float


def _rounded(ends: list[_End], shape: Shape, data: TrainingSet, device: torch.device) -> list[_End]:
    """The same networks in fp16, with what they then do on their training images."""
    states = [
        {name: value.half() if value.is_floating_point() else value for name, value in end.state.items()}
        for end in ends
    ]
    stack = _stacked(shape, [{name: _full(value) for name, value in one.items()} for one in states], device)
    fits = zip(*training_fit(stack, data.inputs(device), data.labels.to(device)), strict=True)
    return [_End(state, *fit) for state, fit in zip(states, fits, strict=True)]


def _full(value: Tensor) -> Tensor:
    """fp16 back to fp32; anything else as it is."""
    return value.float() if value.dtype == torch.float16 else value


def _summary(trained: StackedTraining, end: _End) -> TrainedSummary:
    return TrainedSummary(
        converged=trained.converged or trained.accuracy[-1] >= _CONVERGED,
        stopped=trained.converged,
        epochs=len(trained.loss),
        train_loss=end.loss if math.isfinite(end.loss) else None,
        train_accuracy=end.accuracy,
    )


def _save_states(states: list[dict[str, Tensor]], file: Path) -> None:
    save_file({name: torch.stack([state[name] for state in states]) for name in states[0]}, file)


def judge_block(inputs: JudgeInputs, parents: Mapping[str, Path], out: Path) -> JudgedResult:
    """What the networks of a block do on held-out images: right or wrong per image, and every gap.

    gap = training accuracy − test accuracy; gap_ood_X = training accuracy − accuracy on the shifted set X.
    The gap of a corruption is the mean over its severities, gap_ood_corrupted the mean over all of them.
    With `calibration`, heldout_ece too: the expected calibration error on the images of the gap.
    With `bits`, right or wrong is a bit, and the labels, which are those of the pool, are not repeated.
    """
    block = read_result(parents["block"], BlockResult)
    choice, device = block.choice, compute_device()
    stack = _stack(block.shape, parents["block"] / "final.safetensors", device)

    def logits(images: Tensor) -> Tensor:
        return stack.evaluate(images, partial(standardised, mean=block.mean, std=block.std))

    def right(images: Tensor, labels: Tensor) -> Tensor:
        found: Tensor = logits(images).argmax(dim=2) == labels.to(device)
        return found

    def share(right: Tensor) -> Tensor:
        return right.to(wide(device)).mean(dim=1)

    images, labels = heldout_images(parents["heldout"], choice, inside=False)
    given = logits(images)
    found: Tensor = given.argmax(dim=2) == labels.to(device)
    errors = calibration_errors(given, labels.to(device)).tolist() if inputs.calibration else []
    save_file(_kept(found.cpu(), labels, bits=inputs.bits), out / "evidence.safetensors")
    accuracy = {"": share(found)}
    shifted: dict[str, list[Tensor]] = {}
    if choice.heldout_domain:
        elsewhere = right(*heldout_images(parents["heldout"], choice, inside=True))
        shifted["domain"] = [share(elsewhere)]
    if "shifts" in parents:
        corrupted, labels = shifted_images(parents["shifts"], choice.dataset)
        for key, changed in sorted(corrupted.items()):
            accuracy[key] = share(right(changed, labels))
            shifted.setdefault(key.partition(".")[0], []).append(accuracy[key])
        shifted["corrupted"] = [accuracy[key] for key in corrupted]
    means = {name: torch.stack(parts).mean(dim=0).tolist() for name, parts in shifted.items()}
    networks = []
    for place, trained in enumerate(block.networks):
        test = float(accuracy[""][place])
        networks.append(
            {
                "test_accuracy": test,
                "test_size": found.shape[1],
                "gap": trained.train_accuracy - test,
                **{f"gap_ood_{name}": trained.train_accuracy - m[place] for name, m in means.items()},
                **({"heldout_ece": errors[place]} if errors and math.isfinite(errors[place]) else {}),
                "shifted_accuracy": {key: float(value[place]) for key, value in accuracy.items() if key},
            }
        )
    return JudgedResult(networks=networks)


def _kept(right: Tensor, labels: Tensor, *, bits: bool) -> dict[str, Tensor]:
    """(networks, images) right or wrong as it is stored: as `numpy.packbits` has it, or a byte each."""
    if not bits:
        return {"right": right, "labels": labels}
    return {"right_bits": torch.from_numpy(np.packbits(right.numpy(), axis=1))}


def load_member(name: str, network: Path, training: Path, place: int) -> TrainedNetwork:
    """The originals of a subject: the network at `place` of a block, and its images out of the pool."""
    block = read_result(network, BlockResult)
    shape = block.shape
    data = _images(training, block.choice)
    return TrainedNetwork(
        name=name,
        final=lambda: _model(shape, network / "final.safetensors", place),
        initial=lambda: _model(shape, network / "initial.safetensors", place),
        inputs=data.inputs(data.raw.device),
        labels=data.labels,
        classes=shape.classes,
        hyperparameters=asdict(shape),
        recorded=lambda: _trace(network / "trace.safetensors", place),
        architecture=shape,
    )


@lru_cache(maxsize=1)
def _images(pool: Path, choice: Choice) -> TrainingSet:
    """The images of the last network too: those of a block are trained on the same ones."""
    return training_set(pool, choice)


def _model(shape: Shape, weights: Path, place: int) -> nn.Module:
    """One network of a stack; of the file, nothing else is read."""
    state = {name: _full(value) for name, value in read_row(weights, place).items()}
    return with_state(_plan(shape), state)


@lru_cache(maxsize=16)
def _plan(shape: Shape) -> nn.Module:
    return plan_network(shape).eval()


def _trace(file: Path, place: int) -> dict[str, Tensor]:
    with safe_open(file, framework="pt") as traces:
        mine = [key for key in traces.keys() if key.startswith(f"{place}.")]  # noqa: SIM118
        return {key.partition(".")[2]: traces.get_tensor(key).clone() for key in mine}


def _stack(shape: Shape, weights: Path, device: torch.device) -> StackedNetworks:
    found = _owned(weights)
    count = len(next(iter(found.values())))
    return _stacked(
        shape, [{name: value[place] for name, value in found.items()} for place in range(count)], device
    )


def _stacked(shape: Shape, states: list[dict[str, Tensor]], device: torch.device) -> StackedNetworks:
    networks = [make_network(shape, seed=0) for _ in states]
    for network, state in zip(networks, states, strict=True):
        network.load_state_dict(state)
    return StackedNetworks(networks, device)


def _owned(file: Path) -> dict[str, Tensor]:
    # Copied out of the mapped file, whose alignment could change which vector kernels run.
    return {name: _full(tensor).clone() for name, tensor in load_file(file).items()}
