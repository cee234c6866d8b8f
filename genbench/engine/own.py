"""A network of the user's own, for `genbench read ./mynet.py:build`: built by their function, and told apart.

`build()` returns a `genbench.Subject`. It runs once, in the process that the workers are forked from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from genbench.errors import described
from genbench.keys import canonical_json
from genbench.plugin.registry import load_file
from genbench.subject.subject import Subject, TrainedNetwork

__all__ = ["NoSubject", "build_own", "fingerprint"]

_TRIED = 16
"""Training inputs whose outputs are part of a fingerprint: what the code does, beside its weights."""


_HASHED = 256
"""Training inputs at a time that a fingerprint takes in."""


class NoSubject(Exception):
    """Why the user's function gave no subject."""


def build_own(file: Path, function: str) -> TrainedNetwork:
    """The network behind the subject that `function` of `file` builds."""
    try:
        build = getattr(load_file(file), function, None)
        if not callable(build):
            raise NoSubject(f"it defines no function {function!r}")
        subject = build()
    except (Exception, SystemExit) as problem:
        if isinstance(problem, NoSubject):
            raise
        raise NoSubject(described(problem)) from problem
    if not isinstance(subject, Subject):
        raise NoSubject(
            f"it returned {type(subject).__name__}; return genbench.Subject.from_module(model, data=(x, y))"
        )
    network = subject._network
    if network.device.type != "cpu" or torch.cuda.is_initialized():
        where = "a GPU" if network.device.type == "cpu" else str(network.device)
        raise NoSubject(f"it used {where}; build the network on the CPU and name the device with --device")
    return network


def fingerprint(network: TrainedNetwork) -> str:
    """sha256 of everything that readings depend on: data, weights, and what the modules are and do."""
    digest = hashlib.sha256()
    digest.update(canonical_json(["inputs", str(network.inputs.dtype), list(network.inputs.shape)]).encode())
    for part in network.inputs.split(_HASHED):
        digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    for name, tensor in _tensors(network):
        value = tensor.detach().cpu().contiguous()
        digest.update(canonical_json([name, str(value.dtype), list(value.shape)]).encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    for model in (network.model, network.initial_model):
        digest.update(repr(model).encode())
    digest.update(canonical_json([network.classes, repr(sorted(network.hyperparameters.items()))]).encode())
    return digest.hexdigest()


def _tensors(network: TrainedNetwork) -> Iterator[tuple[str, Tensor]]:
    yield "labels", network.labels
    for name, tensor in (network.trace or {}).items():
        yield f"trace {name}", tensor
    for when, model in (("final", network.model), ("initial", network.initial_model)):
        if model is not None:
            for name, tensor in model.state_dict().items():
                yield f"{when} {name}", tensor
            yield f"{when} outputs", _outputs(model, network.inputs[:_TRIED])


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = model(inputs)
    return outputs
