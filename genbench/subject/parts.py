"""Parts that many measures of one subject share: each is computed once, by genbench's own code alone.

In a notebook or a test, `LocalParts` computes and keeps them. In a run, genbench's own measures of a network
are read in one process, which computes the parts as well (`computed_here`); those of a plugin are forked off
the plugin's process and ask a clean host (`asked`), so that no plugin can colour a part that others use.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genbench.errors import NotApplicable
from genbench.keys import derive_seed
from genbench.subject.part_messages import PartReply, PartRequest
from genbench.subject.plain_values import plain
from genbench.subject.precision import wide

if TYPE_CHECKING:
    from genbench.subject.subject import Subject, TrainedNetwork

__all__ = [
    "CountedParts",
    "Kept",
    "LocalParts",
    "Part",
    "PartSource",
    "asked",
    "compute_cached",
    "compute_own",
    "compute_part",
    "computed_here",
    "part_label",
    "save_part",
    "seed_globals",
    "timed_part",
]

_CPU = torch.device("cpu")

Part = dict[str, Tensor]
"""Named tensors: something that can be kept, copied and sent."""


class PartSource(Protocol):
    """Gives shared parts; every call returns a private copy."""

    def own(self, function: Callable[[Subject], Any], subject: Subject) -> tuple[Any, Iterable[str]]:
        """What a plugin's `function` gives of a fresh view of `subject`, and what it asked that for."""
        ...

    def cached(
        self, key: str, function: Callable[[Subject], Any], subject: Subject
    ) -> tuple[Any, Iterable[str]]:
        """The same of any function, kept under `key` as far as one process goes."""
        ...

    def get(self, name: str, **options: Any) -> Part:
        """The part called `name`, for example "margins"."""
        ...


class LocalParts:
    """Computes parts in this process, each once."""

    def __init__(self, network: TrainedNetwork, seed: int) -> None:
        self._network = network
        self._seed = seed
        self._kept: dict[str, Part | NotApplicable] = {}
        self._own: dict[str, tuple[bytes, frozenset[str]]] = {}
        self.computations: dict[str, int] = {}
        """How often each part was computed."""

    def own(self, function: Callable[[Subject], Any], subject: Subject) -> tuple[Any, Iterable[str]]:
        """What a plugin's function gives, computed now or before."""
        name = function_name(function)
        if name not in self._own:
            self.computations[name] = self.computations.get(name, 0) + 1
            value, used = compute_own(function, subject, self._seed)
            self._own[name] = (msgspec.json.encode(value), used)
        text, used = self._own[name]
        return msgspec.json.decode(text), used

    def cached(
        self, key: str, function: Callable[[Subject], Any], subject: Subject
    ) -> tuple[Any, Iterable[str]]:
        """What a function gave under this key, computed now or before."""
        name = f"cached {key}"
        if name not in self._own:
            self.computations[name] = self.computations.get(name, 0) + 1
            value, used = compute_cached(key, function, subject, self._seed)
            self._own[name] = (msgspec.json.encode(value), used)
        text, used = self._own[name]
        return msgspec.json.decode(text), used

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


Kept = dict[str, tuple[Part, float]]
"""Label to a part and the seconds it took to compute."""
Fetch = Callable[[str, Mapping[str, Any]], tuple[Part, float]]
"""Gets hold of a part that is not kept, with the seconds it took; `NotApplicable` if there is none."""


class CountedParts:
    """Parts for one reading: those that are kept, the others fetched and kept; says what they took.

    Parameters
    ----------
    ask : reaches the process of the reading's plugin, which computes the plugin's own parts; without it they
        are computed here.
    """

    def __init__(
        self,
        kept: Kept,
        refusals: dict[str, str],
        fetch: Fetch,
        ask: Callable[[PartRequest], PartReply] | None = None,
    ) -> None:
        self._ask = ask
        self._kept = kept
        self._refusals = refusals
        self._fetch = fetch
        self._cached: dict[str, tuple[bytes, frozenset[str]]] = {}
        self.waited = 0.0
        """Seconds spent waiting for parts."""
        self.shared_seconds: dict[str, float] = {}
        """What each part used took to compute, whoever asked first."""

    def get(self, name: str, **options: Any) -> Part:
        """The part, from memory or fetched."""
        label = part_label(name, options)
        if label in self._refusals:
            raise NotApplicable(self._refusals[label])
        if label not in self._kept:
            began = time.perf_counter()
            try:
                self._kept[label] = self._fetch(name, options)
            except NotApplicable as refusal:
                self._refusals[label] = str(refusal)
                raise
            finally:
                self.waited += time.perf_counter() - began
        part, seconds = self._kept[label]
        self.shared_seconds[label] = seconds
        return {key: tensor.clone() for key, tensor in part.items()}

    def own(self, function: Callable[[Subject], Any], subject: Subject) -> tuple[Any, Iterable[str]]:
        """What a plugin's function gives, computed by the plugin's process if there is one."""
        if self._ask is None:
            return compute_own(function, subject, subject.seed)
        name = function_name(function)
        began = time.perf_counter()
        reply = self._ask(PartRequest(name, {}, name))
        self.waited += time.perf_counter() - began
        _require(reply, name)
        self.shared_seconds[name] = reply.seconds
        return reply.value, reply.used

    def cached(
        self, key: str, function: Callable[[Subject], Any], subject: Subject
    ) -> tuple[Any, Iterable[str]]:
        """A function of a module as `own` does it; any other once in this reading."""
        if self._ask is not None and is_of_module(function):
            return self.own(function, subject)
        if key not in self._cached:
            value, used = compute_cached(key, function, subject, subject.seed)
            self._cached[key] = (msgspec.json.encode(value), used)
        text, found = self._cached[key]
        return msgspec.json.decode(text), found


def is_of_module(function: Callable[..., Any]) -> bool:
    """Whether another process finds the function by its name."""
    return "." not in getattr(function, "__qualname__", ".") and function.__name__ != "<lambda>"


def function_name(function: Callable[..., Any]) -> str:
    """ "module:function", by which the process of a plugin finds it."""
    if not is_of_module(function):
        raise ValueError(f"subject.shared takes a function of a module, not {function.__qualname__}")
    return f"{function.__module__}:{function.__qualname__}"


def compute_own(
    function: Callable[[Subject], Any], subject: Subject, seed: int
) -> tuple[Any, frozenset[str]]:
    """Compute a plugin's own part; its randomness depends on the subject and the function alone."""
    name = function_name(function)
    view = subject.fresh(seed=derive_seed(seed, "own part", name))
    # As another process would receive it.
    return plain(function(view)), frozenset(view.used)


def compute_cached(
    key: str, function: Callable[[Subject], Any], subject: Subject, seed: int
) -> tuple[Any, frozenset[str]]:
    """Compute what is cached; of a function of a module, the same whether it is cached or shared."""
    if is_of_module(function):
        return compute_own(function, subject, seed)
    view = subject.fresh(seed=derive_seed(seed, "cached", key))
    return plain(function(view)), frozenset(view.used)


def asked(ask: Callable[[PartRequest], PartReply], device: torch.device = _CPU) -> Fetch:
    """Fetches parts from the host process, for a subject on `device`."""

    def fetch(name: str, options: Mapping[str, Any]) -> tuple[Part, float]:
        reply = ask(PartRequest(name, dict(options)))
        _require(reply, part_label(name, options))
        part = {key: tensor.clone() for key, tensor in load_file(reply.file).items()}
        return _there(part, device), reply.seconds

    return fetch


def _require(reply: PartReply, label: str) -> None:
    if reply.status == "not_applicable":
        raise NotApplicable(reply.reason)
    if reply.status == "out_of_memory":
        raise MemoryError(reply.reason)
    if reply.status != "ok":
        raise RuntimeError(f"the shared part {label} is not available: {reply.reason}")


def computed_here(network: TrainedNetwork, seed: int, kept: Kept, refusals: dict[str, str]) -> Fetch:
    """Computes parts in this process, with the bits that a process of their own would give.

    For readings by genbench's own code, which leaves the process as it found it.
    """

    def fetch(name: str, options: Mapping[str, Any]) -> tuple[Part, float]:
        began = time.perf_counter()
        with kept_globals(seed):
            part = compute_part(network, seed, CountedParts(kept, refusals, fetch), name, options)
        # As a file of the part holds it: the order in which a sum runs depends on the layout.
        part = {key: tensor.detach().contiguous().clone() for key, tensor in part.items()}
        return part, time.perf_counter() - began

    return fetch


@contextmanager
def kept_globals(seed: int) -> Iterator[None]:
    """Seed the global random generators, and put them back as they were."""
    import numpy as np

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    seed_globals(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])


def seed_globals(seed: int) -> None:
    """Measures draw from `subject.generator`; one that draws from a global generator is repeatable too."""
    import numpy as np

    # As `torch.manual_seed`, which looks at every sort of accelerator first: a millisecond in a fresh fork.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def part_label(name: str, options: Mapping[str, Any]) -> str:
    """The name under which a part with its options is kept."""
    return f"{name}{json.dumps(options, sort_keys=True)}" if options else name


def compute_part(
    network: TrainedNetwork, seed: int, parts: PartSource, name: str, options: Mapping[str, Any]
) -> Part:
    """Compute one part, on the network's device; its randomness depends on the subject and the part alone.

    Numbers that are not finite are refused here, once, so that no measure has to look for them.
    """
    if name not in _HOMES:
        raise KeyError(f"there is no shared part {name!r}")
    if name not in _OF_WEIGHTS and not network.finite_outputs:
        raise NotApplicable("the network's outputs are not finite")
    generator = torch.Generator("cpu").manual_seed(derive_seed(seed, "part", name, dict(options)))
    function: Callable[..., Part] = getattr(import_module(f"genbench.subject.{_HOMES[name]}"), name)
    try:
        part = function(network, parts, generator, **options)
    except torch.linalg.LinAlgError as problem:  # type: ignore[attr-defined]  # said of NaN and inf
        raise NotApplicable(_OVERFLOW.format(part_label(name, options))) from problem
    if name not in _MAY_BE_INFINITE and not all(bool(t.isfinite().all()) for t in part.values()):
        raise NotApplicable(_OVERFLOW.format(part_label(name, options)))
    return _there(part, network.device)


def _there(part: Part, device: torch.device) -> Part:
    """The part on `device`, in no wider a type than that has."""
    return {
        key: tensor.to(device, wide(device) if tensor.dtype == torch.float64 else tensor.dtype)
        for key, tensor in part.items()
    }


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
    "activations": "activations",
    "batch_gradients": "gradients",
    "gradient_noise": "gradient_noise",
    "scores": "gradients",
    "input_gradients": "gradients",
    "information": "information",
    "curvature": "hessian",
    "weight_noise": "noise",
    "response_curve": "responses",
    "transformed_curve": "transformations",
    "midpoints": "responses",
    "log_evidence": "nngp",
}
"""Part to the module of `genbench.subject` that computes it, by a function of the same name."""


def save_part(part: Part, file: Path) -> None:
    """Write a part where another process can read it."""
    save_file({key: tensor.cpu().contiguous() for key, tensor in part.items()}, file)


def timed_part(
    network: TrainedNetwork, seed: int, parts: PartSource, name: str, options: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Compute a part into `file`; gives the seconds of its own code."""
    began = time.perf_counter()
    save_part(compute_part(network, seed, parts, name, options), file)
    return {"seconds": time.perf_counter() - began}
