"""Parts that many measures of one subject share: each is computed once, by genbench's own code alone.

In a notebook or a test, `LocalParts` computes and keeps them. In a run, measures are forked off a clean
host process; `AskedParts` asks that host, so that no measure's doing can colour a part that others use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.keys import derive_seed
from genbench.subject.spectral import spectral_norm

if TYPE_CHECKING:
    from genbench.subject.folding import FoldedNetwork
    from genbench.subject.subject import TrainedNetwork

__all__ = ["AskedParts", "LocalParts", "Part", "PartSource", "compute_part"]

Part = dict[str, Tensor]
"""Named tensors: something that can be kept, copied and sent."""


class PartSource(Protocol):
    """Gives shared parts; every call returns a private copy."""

    def get(self, name: str, **options: Any) -> Part:
        """The part called `name`, for example "margins"."""
        ...


class LocalParts:
    """Computes parts in this process, each once."""

    def __init__(self, network: TrainedNetwork, seed: int) -> None:
        self._network = network
        self._seed = seed
        self._kept: dict[str, Part | NotApplicable] = {}
        self.computations: dict[str, int] = {}
        """How often each part was computed."""

    def get(self, name: str, **options: Any) -> Part:
        """The part, computed now or before."""
        label = part_label(name, options)
        if label not in self._kept:
            self.computations[label] = self.computations.get(label, 0) + 1
            try:
                self._kept[label] = compute_part(self._network, self._seed, self, name, options)
            except NotApplicable as refusal:
                self._kept[label] = refusal
        part = self._kept[label]
        if isinstance(part, NotApplicable):
            raise part
        return {key: tensor.clone() for key, tensor in part.items()}


class AskedParts:
    """Asks the host process for parts, except for those it had when this process was forked."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, Any]], dict[str, Any]],
        inherited: Mapping[str, tuple[Part, float]],
        refusals: Mapping[str, str],
    ) -> None:
        self._ask = ask
        self._kept = dict(inherited)
        self._refusals = refusals
        self.waited = 0.0
        """Seconds spent waiting for the host."""
        self.shared_seconds: dict[str, float] = {}
        """What each part used took to compute, whoever asked first."""

    def get(self, name: str, **options: Any) -> Part:
        """The part, from memory or from the host."""
        label = part_label(name, options)
        if label in self._refusals:
            raise NotApplicable(self._refusals[label])
        if label not in self._kept:
            self._kept[label] = self._asked(name, options)
        part, seconds = self._kept[label]
        self.shared_seconds[label] = seconds
        return {key: tensor.clone() for key, tensor in part.items()}

    def _asked(self, name: str, options: Mapping[str, Any]) -> tuple[Part, float]:
        began = time.perf_counter()
        reply = self._ask({"name": name, "options": options})
        self.waited += time.perf_counter() - began
        status, reason = reply["status"], reply.get("reason", "")
        if status == "not_applicable":
            raise NotApplicable(reason)
        if status == "out_of_memory":
            raise MemoryError(reason)
        if status != "ok":
            raise RuntimeError(f"the shared part {part_label(name, options)} is not available: {reason}")
        part = {key: tensor.clone() for key, tensor in load_file(reply["file"]).items()}
        return part, float(reply["seconds"])


def part_label(name: str, options: Mapping[str, Any]) -> str:
    """The name under which a part with its options is kept."""
    return f"{name}{json.dumps(options, sort_keys=True)}" if options else name


def compute_part(
    network: TrainedNetwork, seed: int, parts: PartSource, name: str, options: Mapping[str, Any]
) -> Part:
    """Compute one part; its randomness depends on the subject and the part alone."""
    if name not in _PARTS:
        raise KeyError(f"there is no shared part {name!r}")
    generator = torch.Generator().manual_seed(derive_seed(seed, "part", name, dict(options)))
    return _PARTS[name](network, parts, generator, **options)


def save_part(part: Part, file: Path) -> None:
    """Write a part where another process can read it."""
    save_file({key: tensor.contiguous() for key, tensor in part.items()}, file)


def _logits(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    with torch.no_grad():
        return {"logits": torch.cat([network.model(x) for x in network.inputs.split(256)])}


def _margins(network: TrainedNetwork, parts: PartSource, generator: torch.Generator) -> Part:
    logits = parts.get("logits")["logits"]
    label = network.labels[:, None]
    others = logits.scatter(1, label, -torch.inf)
    return {"margins": logits.gather(1, label)[:, 0] - others.amax(1)}


def _spectral_norms(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, of: str, grid: str
) -> Part:
    folded = _folded(network)
    weights = folded.weights() if of == "final" else _initial_or_change(network, folded, of)
    sides = _grid_sides(network, folded, grid)
    norms = [
        spectral_norm(layer, weight, side)
        for layer, weight, side in zip(folded.layers(), weights, sides, strict=True)
    ]
    return {"norms": torch.tensor(norms, dtype=torch.float64)}


def _folded(network: TrainedNetwork) -> FoldedNetwork:
    if isinstance(network.folded, NotApplicable):
        raise network.folded
    return network.folded


def _initial_or_change(network: TrainedNetwork, folded: FoldedNetwork, of: str) -> list[Tensor]:
    initial = network.folded_initial
    if initial is None:
        raise NotApplicable("the initial weights of this network are not known")
    if isinstance(initial, NotApplicable):
        raise initial
    if of == "initial":
        return initial.weights()
    return [w - w0 for w, w0 in zip(folded.weights(), initial.weights(), strict=True)]


def _grid_sides(network: TrainedNetwork, folded: FoldedNetwork, grid: str) -> list[int]:
    image = int(network.inputs.shape[-1])
    if grid == "image":
        return [image] * len(folded.layer_names)
    seen: dict[str, int] = {}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, inputs, name=name: seen.__setitem__(name, int(inputs[0].shape[-1]))
        )
        for name, layer in zip(folded.layer_names, folded.layers(), strict=True)
    ]
    with torch.no_grad():
        folded.module(network.inputs[:1])
    for handle in handles:
        handle.remove()
    return [seen[name] for name in folded.layer_names]


_DROP, _TOLERANCE, _DRAWS, _STEPS, _EPS = 0.1, 0.01, 10, 15, 1e-3


def _sigma(
    network: TrainedNetwork, parts: PartSource, generator: torch.Generator, magnitude_aware: bool
) -> Part:
    """Bisection for the noise that lowers the mean training accuracy by .1 (001 C.6, SPEC.md section 4)."""
    noisy = _folded(network).copy().module
    parameters = list(noisy.parameters())
    clean = [p.detach().clone() for p in parameters]
    unperturbed = _accuracy(noisy, network)
    low, high = 0.0, 2.0
    sigma = 1.0
    with torch.no_grad():
        for _ in range(_STEPS):
            sigma = (low + high) / 2
            accuracies = []
            for _ in range(_DRAWS):
                for parameter, value in zip(parameters, clean, strict=True):
                    noise = torch.randn(value.shape, generator=generator)
                    spread = (sigma**2 * value.square() + _EPS**2).sqrt() if magnitude_aware else sigma
                    parameter.copy_(value + spread * noise)
                accuracies.append(_accuracy(noisy, network))
            drop = unperturbed - sum(accuracies) / len(accuracies)
            if abs(drop - _DROP) < _TOLERANCE:
                break
            low, high = (low, sigma) if drop > _DROP else (sigma, high)
    return {"sigma": torch.tensor(sigma, dtype=torch.float64)}


def _accuracy(model: nn.Module, network: TrainedNetwork) -> float:
    with torch.no_grad():
        predicted = torch.cat([model(x).argmax(1) for x in network.inputs.split(1024)])
    return float((predicted == network.labels).double().mean())


_PARTS: dict[str, Callable[..., Part]] = {
    "logits": _logits,
    "margins": _margins,
    "spectral_norms": _spectral_norms,
    "sigma": _sigma,
}


def timed_part(
    network: TrainedNetwork, seed: int, parts: PartSource, name: str, options: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Compute a part into `file`; gives the seconds of its own code."""
    began = time.perf_counter()
    save_part(compute_part(network, seed, parts, name, options), file)
    return {"seconds": time.perf_counter() - began}
