"""The cells of a population: training data, held-out data, one trained network, its evidence.

Training and held-out images live in cells of their own, so that a process that runs measures opens a
file in which there is nothing held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.data.images import ImageSplit
from genbench.engine.store import read_manifest
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry
from genbench.population.architectures import build
from genbench.population.training import Recipe, accuracy, train
from genbench.subject.subject import TrainedNetwork

__all__ = ["evaluate", "heldout_data", "load_network", "train_network", "training_data"]


def training_data(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Draw the training set of a population and store it as the networks take it."""
    data = load_registry().get("datasets", inputs["dataset"]).item.load(DataRequest())
    size = int(inputs["train_size"])
    if size > len(data.train):
        raise UserError(f"train_size = {size}, but {inputs['dataset']} has {len(data.train)} training images")
    generator = torch.Generator().manual_seed(int(inputs["seed"]))
    rows = torch.randperm(len(data.train), generator=generator)[:size]
    raw = data.train.batch(rows).float() / 255
    mean, std = float(raw.mean()), float(raw.std())
    save_file({"images": (raw - mean) / std, "labels": data.train.labels[rows]}, out / "training.safetensors")
    return {"mean": mean, "std": std, "classes": len(data.class_names), "m": size}


def heldout_data(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Store the held-out images, standardised with the training set's statistics."""
    split: ImageSplit = load_registry().get("datasets", inputs["dataset"]).item.load(DataRequest()).heldout
    training = _result(parents["training"])
    raw = split.batch(range(len(split))).float() / 255
    images = (raw - training["mean"]) / training["std"]
    save_file({"images": images, "labels": split.labels.clone()}, out / "heldout.safetensors")
    return {"size": len(split)}


def train_network(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Train one network; store its weights before and after, and the trace of its training."""
    images, labels = _images(parents["training"] / "training.safetensors")
    shape = {
        "architecture": inputs["architecture"],
        "depth": int(inputs["depth"]),
        "width": int(inputs["width"]),
        "channels": int(images.shape[1]),
        "classes": int(_result(parents["training"])["classes"]),
    }
    model = build(**shape, seed=int(inputs["init_seed"]))
    save_file(model.state_dict(), out / "initial.safetensors")
    recipe = Recipe(**{f.name: inputs[f.name] for f in fields(Recipe)})
    history = train(model, images, labels, recipe, int(inputs["order_seed"]))
    save_file(model.state_dict(), out / "final.safetensors")
    trace = {"loss": torch.tensor(history.loss), "accuracy": torch.tensor(history.accuracy)}
    save_file(trace, out / "trace.safetensors")
    return {
        "shape": shape,
        # SPEC section 2: neither its stopping rule nor 99 % training accuracy makes a run unconverged.
        "converged": history.converged or history.accuracy[-1] >= 0.99,
        "epochs": len(history.loss),
        "train_loss": history.loss[-1],
        "train_accuracy": history.accuracy[-1],
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def evaluate(inputs: Mapping[str, Any], parents: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Evidence: which held-out images one network classifies right."""
    trained = _result(parents["network"])
    model = _model(trained["shape"], parents["network"] / "final.safetensors")
    images, labels = _images(parents["heldout"] / "heldout.safetensors")
    right = accuracy(model, images, labels)
    save_file({"right": right, "labels": labels}, out / "evidence.safetensors")
    test_accuracy = float(right.double().mean())
    return {
        "test_accuracy": test_accuracy,
        "test_size": len(labels),
        "gap": trained["train_accuracy"] - test_accuracy,
    }


def load_network(name: str, network: Path, training: Path) -> TrainedNetwork:
    """The originals of a subject, from the cells of its training and its training data."""
    result = _result(network)
    images, labels = _images(training / "training.safetensors")
    return TrainedNetwork(
        name=name,
        model=_model(result["shape"], network / "final.safetensors"),
        initial_model=_model(result["shape"], network / "initial.safetensors"),
        inputs=images,
        labels=labels,
        classes=int(result["shape"]["classes"]),
        trace=_owned(network / "trace.safetensors"),
    )


def _model(shape: Mapping[str, Any], weights: Path) -> torch.nn.Module:
    model = build(**shape, seed=0)
    model.load_state_dict(_owned(weights))
    return model.eval()


def _images(file: Path) -> tuple[Tensor, Tensor]:
    tensors = _owned(file)
    return tensors["images"], tensors["labels"]


def _owned(file: Path) -> dict[str, Tensor]:
    # Copied out of the mapped file, whose alignment could change which vector kernels run.
    return {name: tensor.clone() for name, tensor in load_file(file).items()}


def _result(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = read_manifest(folder)["result"]
    return result
