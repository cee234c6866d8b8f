"""What workers do: images, one network, the held-out errors of all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from genbench.plugin import DataRequest
from genbench.plugin.registry import load_registry
from genbench.subject.inputs import Inputs
from genbench.subject.subject import TrainedNetwork

Folders = Mapping[str, Path]
CLASSES = 10


def images(inputs: Mapping[str, Any], parents: Folders, out: Path) -> dict[str, Any]:
    """The training images, or the held-out ones."""
    data = load_registry().get("datasets", "digits").item.load(DataRequest())
    split = getattr(data, inputs["part"])
    pixels, labels = (torch.as_tensor(one)[: inputs["size"]] for one in (split.images, split.labels))
    save_file({"images": pixels.float() / 255, "labels": labels}, out / "images.safetensors")
    return {"data_hash": data.content_hash}


def network(inputs: Mapping[str, Any], parents: Folders, out: Path) -> dict[str, Any]:
    """One network before and after `steps` of gradient descent."""
    data = load_file(parents["training"] / "images.safetensors")
    torch.manual_seed(inputs["seed"])
    model = _classifier()
    save_file(model.state_dict(), out / "initial.safetensors")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(inputs["steps"]):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data["images"]), data["labels"]).backward()
        optimizer.step()
    save_file(model.state_dict(), out / "final.safetensors")
    return {}


def truths(inputs: Mapping[str, Any], parents: Folders, out: Path) -> dict[str, Any]:
    """Network to its error on held-out images."""
    data = load_file(parents["heldout"] / "images.safetensors")
    errors = {}
    for name in inputs["networks"]:
        model = _classifier(parents[name] / "final.safetensors")
        with torch.no_grad():
            wrong = model(data["images"]).argmax(dim=1) != data["labels"]
        errors[name] = wrong.double().mean().item()
    return {"errors": errors}


def load(name: str, network: Path, training: Path) -> TrainedNetwork:
    """A network as measures see it."""
    data = load_file(training / "images.safetensors")
    final, initial = (_classifier(network / f"{one}.safetensors") for one in ("final", "initial"))
    return TrainedNetwork(name, final, initial, Inputs(data["images"]), data["labels"], CLASSES)


def _classifier(weights: Path | None = None) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    if weights is not None:
        model.load_state_dict(load_file(weights))
    return model.eval()
