"""What guarded processes do, whether they were forked from one that holds the network or started fresh."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from genbench.engine.compute import compute_device
from genbench.engine.guarded import Ask
from genbench.engine.messages import Found, NetworkPlace, PartWork, Reading, Task
from genbench.engine.own import NoSubject, build_own, fingerprint
from genbench.engine.steps import load_named, load_step
from genbench.engine.taking import take
from genbench.plugin.contract import Measure
from genbench.subject.parts import (
    CountedParts,
    Kept,
    asked,
    compute_own,
    computed_here,
    seed_globals,
    timed_part,
)
from genbench.subject.subject import Subject, TrainedNetwork

__all__ = [
    "OwnReadings",
    "compute_for_plugins",
    "compute_shared",
    "load_network",
    "step_work",
    "take_plugins",
]


def load_network(place: NetworkPlace) -> TrainedNetwork:
    """Load a network from the folders of its cells, or have the user's function build it again."""
    if place.builder is not None:
        network = build_own(Path(place.builder.file), place.builder.function)
        if fingerprint(network) != place.builder.fingerprint:
            raise NoSubject("it builds another network each time it is called; seed what it draws")
        return network
    folders = {name: Path(folder) for name, folder in place.folders.items()}
    loaded: TrainedNetwork = load_named(place.loader)(place.name, **folders, **place.options)
    return loaded


class OwnReadings:
    """Readings by genbench's own measures in one process, which computes the parts that they share."""

    def __init__(
        self,
        network: TrainedNetwork,
        measures: Mapping[str, Measure],
        part_seed: int,
        kept: Kept,
        refusals: Mapping[str, str],
    ) -> None:
        self._original = network
        self._measures = measures
        self._part_seed = part_seed
        self._given = kept
        self._refusals = dict(refusals)

    @cached_property
    def _network(self) -> TrainedNetwork:
        return self._original.on(compute_device())  # once for all readings, and not before the fork

    @cached_property
    def _kept(self) -> Kept:
        return _usable(self._given, self._network)

    def take(self, reading: Reading, ask: Ask) -> Found:
        """A piece of work."""
        fetch = computed_here(self._network, self._part_seed, self._kept, self._refusals)
        parts = CountedParts(self._kept, self._refusals, fetch)
        return take(self._measures[reading.measure], reading, self._network, parts)


def _usable(kept: Kept, network: TrainedNetwork) -> Kept:
    """The parts that a host keeps, which are on the CPU; elsewhere none: they are asked for, or computed."""
    return kept if network.device.type == "cpu" else {}


def take_plugins(
    measure: Measure, reading: Reading, network: TrainedNetwork, ask: Ask, *, shared: bool = True
) -> Found:
    """A reading by a plugin's measure, which asks for genbench's parts and, if `shared`, for the plugin's."""
    here = network.on(compute_device())
    return take(measure, reading, here, _parts(ask, here, shared=shared))


def compute_for_plugins(
    network: TrainedNetwork, work: PartWork, kept: Kept, refusals: dict[str, str], ask: Ask
) -> Mapping[str, Any]:
    """A part by genbench's own code, into a file."""
    seed_globals(work.part_seed)
    here = network.on(compute_device())
    parts = CountedParts(_usable(kept, here), refusals, asked(ask, here.device))
    return timed_part(here, work.part_seed, parts, work.name, work.options, Path(work.file))


def compute_shared(network: TrainedNetwork, function: str, seed: int, ask: Ask) -> Mapping[str, Any]:
    """What a function of a plugin gives its measures to share; the plugin is imported."""
    seed_globals(seed)
    module, _, name = function.partition(":")
    here = network.on(compute_device())
    subject = Subject(here, _parts(ask, here), seed=seed)
    value, used = compute_own(getattr(sys.modules[module], name), subject, seed)
    return {"value": value, "used": sorted(used)}


def _parts(ask: Ask, network: TrainedNetwork, *, shared: bool = True) -> CountedParts:
    return CountedParts({}, {}, asked(ask, network.device), ask if shared else None)


def step_work(task: Task) -> Callable[[Ask], Mapping[str, Any]]:
    """The step of a cell, imported here."""
    parents = {name: Path(folder) for name, folder in task.parents.items()}
    inputs = {**task.inputs, "how": task.how} if task.how else task.inputs
    step = load_step(task.step, inputs)
    return lambda _: step(inputs, parents, Path(task.out))
