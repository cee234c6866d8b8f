"""Parts that many measures of one subject share: each is computed once, by genbench's own code alone.

In a notebook or a test, `LocalParts` computes and keeps them. In a run, measures are forked off a clean
host process; `AskedParts` asks that host, so that no measure's doing can colour a part that others use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.keys import derive_seed

if TYPE_CHECKING:
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
    """Compute one part; its randomness depends on the subject and the part alone.

    Numbers that are not finite are refused here, once, so that no measure has to look for them.
    """
    if name not in _HOMES:
        raise KeyError(f"there is no shared part {name!r}")
    if name not in _OF_WEIGHTS and not network.finite_outputs:
        raise NotApplicable("the network's outputs are not finite")
    generator = torch.Generator().manual_seed(derive_seed(seed, "part", name, dict(options)))
    function: Callable[..., Part] = getattr(import_module(f"genbench.subject.{_HOMES[name]}"), name)
    try:
        part = function(network, parts, generator, **options)
    except torch.linalg.LinAlgError as problem:  # type: ignore[attr-defined]  # said of NaN and inf
        raise NotApplicable(_OVERFLOW.format(part_label(name, options))) from problem
    if name not in _MAY_BE_INFINITE and not all(bool(t.isfinite().all()) for t in part.values()):
        raise NotApplicable(_OVERFLOW.format(part_label(name, options)))
    return part


_OVERFLOW = "the network's weights or outputs are too large or too small: {} is beyond floating point"
_OF_WEIGHTS = {"spectral_norms", "flat_spectral_norms", "log_paths", "log_evidence"}
"""Parts that have a meaning whatever the network's outputs are."""
_MAY_BE_INFINITE = {"log_paths"}
"""A network of which every path is broken has the logarithm of 0."""


_HOMES = {
    "logits": "outputs",
    "margins": "outputs",
    "spectral_norms": "spectral",
    "flat_spectral_norms": "spectral",
    "log_paths": "paths",
    "sigma": "sigma",
    "batch_gradients": "gradients",
    "scores": "gradients",
    "input_gradients": "gradients",
    "information": "information",
    "curvature": "hessian",
    "weight_noise": "noise",
    "response_curve": "responses",
    "midpoints": "responses",
    "log_evidence": "nngp",
}
"""Part to the module of `genbench.subject` that computes it, by a function of the same name."""


def save_part(part: Part, file: Path) -> None:
    """Write a part where another process can read it."""
    save_file({key: tensor.contiguous() for key, tensor in part.items()}, file)


def timed_part(
    network: TrainedNetwork, seed: int, parts: PartSource, name: str, options: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Compute a part into `file`; gives the seconds of its own code."""
    began = time.perf_counter()
    save_part(compute_part(network, seed, parts, name, options), file)
    return {"seconds": time.perf_counter() - began}
