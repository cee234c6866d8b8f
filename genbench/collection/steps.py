"""The cells of a collection: its training data, and each network with its weights in one form."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from genbench.collection.step_types import (
    NetworkInputs,
    NetworkResult,
    TrainingInputs,
    TrainingResult,
)
from genbench.collection.training_data import given_images, prepared_images
from genbench.collection.user_code import UserFunction, call, users_code, write_code
from genbench.collection.weight_files import load_weights, read_weights
from genbench.data.tensor_file import RowFile, write_rows
from genbench.engine.cells import Setting
from genbench.engine.steps import read_result
from genbench.errors import UserError, described, one_line
from genbench.keys import file_hash
from genbench.subject.inputs import Inputs
from genbench.subject.subject import TrainedNetwork

__all__ = ["load_network", "take_network", "training_data"]

_DATA = "training.safetensors"
_FINAL = "final.safetensors"
_INITIAL = "initial.safetensors"
_CODE = "code.zip"
_TRIED = 512
"""Training examples on which a network is tried out."""
_WRITTEN = 256
"""Training examples that are written at a time."""


def training_data(inputs: TrainingInputs, parents: Mapping[str, Path], out: Path) -> TrainingResult:
    """Store the training set as the networks take it."""
    how = inputs.how
    assert how is not None
    images: Iterable[Tensor]
    if how.function is not None:
        given, labels = given_images(_unchanged(how.function, inputs.code))
        images = given.split(_WRITTEN)
    else:
        assert how.dataset is not None
        images, labels = prepared_images(how.dataset, inputs.data.given())
    shape = write_rows(out / _DATA, "images", images, len(labels), {"labels": labels})
    return TrainingResult(size=len(labels), shape=list(shape[1:]))


def take_network(inputs: NetworkInputs, parents: Mapping[str, Path], out: Path) -> NetworkResult:
    """Build a network, give it its weights, try it, and store all that a reading needs to have it again."""
    how = inputs.how
    assert how is not None
    builder = _unchanged(how.builder, inputs.code)
    if not builder.module:
        write_code(builder, out / _CODE)
    final = _weighted(builder, inputs, out, Path(how.weights), inputs.weights)
    _save(final, out / _FINAL)
    if how.initial is not None:
        _save(_weighted(builder, inputs, out, Path(how.initial), inputs.initial), out / _INITIAL)
    classes, tried, accuracy = _tried(final, inputs.network, builder.spec, parents["training"])
    return NetworkResult(
        hyperparameters=inputs.hyperparameters,
        builder=builder.spec,
        parameters=sum(p.numel() for p in final.parameters() if p.requires_grad),
        classes=classes,
        tried=tried,
        tried_accuracy=accuracy,
    )


def load_network(name: str, network: Path, training: Path) -> TrainedNetwork:
    """The originals of a subject, from its own cell and the training data."""
    result = read_result(network, NetworkResult)

    def model(file: str) -> nn.Module:
        built = _built(result.builder, network, result.hyperparameters, name)
        # Copied out of the mapped file, whose alignment could change which vector kernels run.
        built.load_state_dict({key: value.clone() for key, value in load_file(network / file).items()})
        return built.eval()

    return TrainedNetwork(
        name=name,
        final=model(_FINAL),
        initial=model(_INITIAL) if (network / _INITIAL).is_file() else None,
        inputs=Inputs(RowFile(training / _DATA, "images")),
        labels=RowFile(training / _DATA, "labels")[:],
        classes=result.classes,
        hyperparameters=result.hyperparameters,
    )


def _unchanged(function: UserFunction, planned: str | None) -> UserFunction:
    if function.content() != planned:
        raise UserError(f"{function.file} was changed while genbench ran; run the same command again")
    return function


def _weighted(
    builder: UserFunction, inputs: NetworkInputs, cell: Path, file: Path, planned: str | None
) -> nn.Module:
    name = inputs.network
    if file_hash(file) != planned:
        raise UserError(f"{file} was changed while genbench ran; run the same command again")
    model = _built(builder.spec, cell, inputs.hyperparameters, name)
    load_weights(model, read_weights(file, inputs.strip), file, f"network {name} of {builder.spec}")
    return model.eval()


def _built(spec: str, cell: Path, hyperparameters: Mapping[str, Setting], name: str) -> nn.Module:
    """What the builder gives, from the code in the cell: the same as when its weights were read."""
    with tempfile.TemporaryDirectory(prefix="genbench-") as folder:
        if (cell / _CODE).is_file():
            with zipfile.ZipFile(cell / _CODE) as archive:
                archive.extractall(folder)
        builder = UserFunction(spec, str(Path(folder) / Path(spec.rpartition(":")[0]).name))
        with users_code(builder) as build, torch.device("cpu"):
            model = call(builder, build, hyperparameters, f"network {name}")
    if not isinstance(model, nn.Module):
        raise UserError(
            f"{spec} gives no network {name}: it returned {type(model).__name__}, expected a torch.nn.Module"
        )
    return model.cpu()


def _save(model: nn.Module, file: Path) -> None:
    # Each its own copy: networks may share weights between layers, files of this format may not.
    save_file({key: value.detach().clone().contiguous() for key, value in model.state_dict().items()}, file)


def _tried(model: nn.Module, name: str, spec: str, training: Path) -> tuple[int, int, float]:
    """Classes, and how many training images were tried and what share of them it tells.

    A network that cannot take them is refused here.
    """
    images, labels = RowFile(training / _DATA, "images")[:_TRIED], RowFile(training / _DATA, "labels")[:]
    shape = "×".join(map(str, images.shape[1:]))
    who = f"network {name} of {spec}"
    try:
        with torch.no_grad():
            logits = torch.cat([model(batch) for batch in images.split(64)])
    except Exception as problem:
        raise UserError(
            f"{who} cannot take the training images, which are {shape}: {one_line(described(problem), 140)}"
        ) from problem
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UserError(
            f"{who} gives outputs of shape {tuple(logits.shape)} for {len(images)} images, expected "
            "(images, classes)"
        )
    classes = logits.shape[1]
    if int(labels.max()) >= classes:
        raise UserError(
            f"{who} has {classes} outputs, but there are training labels up to {int(labels.max())}"
        )
    right = (logits.argmax(dim=1) == labels[:_TRIED]).double().mean()
    return classes, len(images), float(right)
