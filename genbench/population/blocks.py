"""The cells of a population: blocks of networks trained at once, and their evidence; a network of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from genbench.engine.store import read_manifest
from genbench.population.calibration import calibration_errors
from genbench.population.memory import keep_freed_memory
from genbench.population.networks import Shape, make_network
from genbench.population.pools import Choice, TrainingSet, heldout_images, shifted_images, training_set
from genbench.population.stacked import StackedNetworks
from genbench.population.stacked_training import BlockRecipe, NetworkRecipe, StackedTraining, train_stacked
from genbench.subject.inputs import Inputs
from genbench.subject.subject import TrainedNetwork

__all__ = ["judge_block", "load_member", "train_block"]

_CONVERGED = 0.99
"""SPEC section 2: neither its stopping rule nor this training accuracy makes a run unconverged."""


def train_block(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Train all networks of a block at once; store their weights before and after, and their traces."""
    keep_freed_memory()
    choice = Choice(**inputs["choice"])
    data = training_set(parents["training"], choice)
    _, channels, height, width = data.images.shape
    shape = Shape(
        **inputs["shape"], channels=channels, height=height, image_width=width, classes=data.classes
    )
    networks = [make_network(shape, int(one["init_seed"])) for one in inputs["networks"]]
    _save_states([dict(network.state_dict()) for network in networks], out / "initial.safetensors")
    names = {field.name for field in fields(NetworkRecipe)}
    recipes = [NetworkRecipe(**{k: v for k, v in one.items() if k in names}) for one in inputs["networks"]]
    trained = train_stacked(networks, data.images, data.labels, BlockRecipe(**inputs["recipe"]), recipes)
    _save_states([one.state for one in trained], out / "final.safetensors")
    traces = {f"{i}.{name}": value for i, one in enumerate(trained) for name, value in one.trace().items()}
    save_file(traces, out / "trace.safetensors")
    parameters = sum(p.numel() for p in networks[0].parameters())
    return {
        "shape": asdict(shape),
        "choice": asdict(choice),
        "mean": data.mean,
        "std": data.std,
        "parameters": parameters,
        "networks": [_summary(one) for one in trained],
    }


def _summary(trained: StackedTraining) -> dict[str, Any]:
    loss = trained.loss[-1]
    return {
        "converged": trained.converged or trained.accuracy[-1] >= _CONVERGED,
        "stopped": trained.converged,
        "epochs": len(trained.loss),
        # JSON has no NaN; a diverged network has no loss.
        "train_loss": loss if math.isfinite(loss) else None,
        "train_accuracy": trained.accuracy[-1],
    }


def _save_states(states: list[dict[str, Tensor]], file: Path) -> None:
    save_file({name: torch.stack([state[name] for state in states]) for name in states[0]}, file)


def judge_block(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """What the networks of a block do on held-out images: right or wrong per image, and every gap.

    gap = training accuracy − test accuracy; gap_ood_X = training accuracy − accuracy on the shifted set X.
    The gap of a corruption is the mean over its severities, gap_ood_corrupted the mean over all of them.
    With `calibration`, heldout_ece too: the expected calibration error on the images of the gap.
    With `bits`, right or wrong is a bit, and the labels, which are those of the pool, are not repeated.
    """
    block = _result(parents["block"])
    choice = Choice(**block["choice"])
    stack = _stack(Shape(**block["shape"]), parents["block"] / "final.safetensors")

    def logits(images: Tensor) -> Tensor:
        return stack.evaluate((images.float() / 255 - block["mean"]) / block["std"])

    def right(images: Tensor, labels: Tensor) -> Tensor:
        return torch.as_tensor(logits(images).argmax(dim=2) == labels)

    images, labels = heldout_images(parents["heldout"], choice, inside=False)
    given = logits(images)
    found = given.argmax(dim=2) == labels
    errors = calibration_errors(given, labels).tolist() if inputs.get("calibration") else []
    save_file(_kept(found, labels, bits=bool(inputs.get("bits"))), out / "evidence.safetensors")
    accuracy = {"": found.double().mean(dim=1)}
    shifted: dict[str, list[Tensor]] = {}
    if choice.heldout_domain:
        elsewhere = right(*heldout_images(parents["heldout"], choice, inside=True))
        shifted["domain"] = [elsewhere.double().mean(dim=1)]
    if "shifts" in parents:
        corrupted, labels = shifted_images(parents["shifts"], choice.dataset)
        for key, changed in sorted(corrupted.items()):
            accuracy[key] = right(changed, labels).double().mean(dim=1)
            shifted.setdefault(key.partition(".")[0], []).append(accuracy[key])
        shifted["corrupted"] = [accuracy[key] for key in corrupted]
    means = {name: torch.stack(parts).mean(dim=0).tolist() for name, parts in shifted.items()}
    networks = []
    for place, trained in enumerate(block["networks"]):
        test = float(accuracy[""][place])
        networks.append(
            {
                "test_accuracy": test,
                "test_size": found.shape[1],
                "gap": trained["train_accuracy"] - test,
                **{f"gap_ood_{name}": trained["train_accuracy"] - m[place] for name, m in means.items()},
                **({"heldout_ece": errors[place]} if errors and math.isfinite(errors[place]) else {}),
                "shifted_accuracy": {key: float(value[place]) for key, value in accuracy.items() if key},
            }
        )
    return {"networks": networks}


def _kept(right: Tensor, labels: Tensor, *, bits: bool) -> dict[str, Tensor]:
    """(networks, images) right or wrong as it is stored: as `numpy.packbits` has it, or a byte each."""
    if not bits:
        return {"right": right, "labels": labels}
    return {"right_bits": torch.from_numpy(np.packbits(right.cpu().numpy(), axis=1))}


def load_member(name: str, network: Path, training: Path, place: int) -> TrainedNetwork:
    """The originals of a subject: the network at `place` of a block, and its images out of the pool."""
    block = _result(network)
    shape = Shape(**block["shape"])
    data = _images(training, Choice(**block["choice"]))
    return TrainedNetwork(
        name=name,
        final=lambda: _model(shape, network / "final.safetensors", place),
        initial=lambda: _model(shape, network / "initial.safetensors", place),
        inputs=Inputs(data.images),
        labels=data.labels,
        classes=shape.classes,
        recorded=lambda: _trace(network / "trace.safetensors", place),
    )


@lru_cache(maxsize=1)
def _images(pool: Path, choice: Choice) -> TrainingSet:
    """The images of the last network too: those of a block are trained on the same ones."""
    return training_set(pool, choice)


def _model(shape: Shape, weights: Path, place: int) -> nn.Module:
    """One network of a stack; of the file, nothing else is read."""
    model = make_network(shape, seed=0)
    with safe_open(weights, framework="pt") as file:
        # Copied out of the mapped file, whose alignment could change which vector kernels run.
        state = {key: file.get_slice(key)[place].clone().contiguous() for key in file.keys()}  # noqa: SIM118
    model.load_state_dict(state)
    return model.eval()


def _trace(file: Path, place: int) -> dict[str, Tensor]:
    with safe_open(file, framework="pt") as traces:
        mine = [key for key in traces.keys() if key.startswith(f"{place}.")]  # noqa: SIM118
        return {key.partition(".")[2]: traces.get_tensor(key).clone() for key in mine}


def _stack(shape: Shape, weights: Path) -> StackedNetworks:
    states = _owned(weights)
    count = len(next(iter(states.values())))
    networks = [make_network(shape, seed=0) for _ in range(count)]
    for place, network in enumerate(networks):
        network.load_state_dict({name: value[place] for name, value in states.items()})
    return StackedNetworks(networks)


def _owned(file: Path) -> dict[str, Tensor]:
    # Copied out of the mapped file, whose alignment could change which vector kernels run.
    return {name: tensor.clone() for name, tensor in load_file(file).items()}


def _result(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = read_manifest(folder)["result"]
    return result
