"""What processes of the engine say to each other: one JSON document a line, each of a type.

Free of torch: the command line speaks it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from genbench.engine.cells import Fixable, Limits, Outcome, Result, Setting, Status, Told
from genbench.keys import Inputs
from genbench.plugin.registry import Source

__all__ = [
    "Begun",
    "Build",
    "Builder",
    "Built",
    "Done",
    "Ended",
    "Found",
    "Fresh",
    "FreshWork",
    "Job",
    "NetworkPlace",
    "Order",
    "PartWork",
    "Reading",
    "ReadingPlace",
    "ReadingsWork",
    "Ready",
    "SharedWork",
    "Start",
    "Started",
    "StepWork",
    "Stop",
    "Stopped",
    "Task",
    "line",
    "parse",
]

T = TypeVar("T")


# -- an executor and its workers -------------------------------------------------------------------------


class Task(msgspec.Struct, frozen=True):
    """One cell for a worker."""

    key: str
    """A number of the executor's, which says nothing."""
    step: str
    """Function of the cell's step; that of a reading is empty."""
    inputs: Inputs
    how: Told
    parents: dict[str, str]
    """Name to folder of what the cell reads."""
    out: str
    """Folder for its files."""
    group: str = ""
    """Stands for the network of a reading."""


class Job(msgspec.Struct, frozen=True):
    """Cells for a worker, which answers with an `Ended` for each, in any order."""

    tasks: list[Task]
    limits: Limits
    """Of each cell."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A cell ended."""

    key: str
    outcome: Outcome


class ReadingPlace(msgspec.Struct, frozen=True):
    """`how` of a reading: where a worker finds its measure and its network."""

    source: Source
    part_seed: int
    loader: str = ""
    """ "module:function" that gives the network; none for one that the worker holds from its start."""
    options: Mapping[str, Setting] = {}
    """For the loader, beside the folders: the place of a network in its stack, say."""


# -- an executor and the nursery of its workers --------------------------------------------------------------


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Fork a worker; with the message come its channel and its log."""


class Started(msgspec.Struct, frozen=True):
    """It runs."""

    pid: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End a worker."""

    pid: int
    patience: float = 0.0
    """Seconds to let it end by itself, as one does whose channel was closed between two trips."""


class Stopped(msgspec.Struct, frozen=True):
    """It is gone."""

    exit_code: int


class Build(msgspec.Struct, frozen=True, tag="build"):
    """Let a function of the user's build the network that all workers will hold."""

    file: str
    function: str
    seed: int


class Built(msgspec.Struct, frozen=True):
    """What stands for the network in keys, or why there is none."""

    fingerprint: str = ""
    problem: str = ""


# -- a host and the process of a plugin --------------------------------------------------------------------


class Reading(msgspec.Struct, frozen=True):
    """One measure to be read."""

    key: str
    measure: str
    seed: int


class Builder(msgspec.Struct, frozen=True):
    """A function of the user's, for processes that do not inherit the network it built."""

    file: str
    function: str
    fingerprint: str
    """Of that network."""


class NetworkPlace(msgspec.Struct, frozen=True):
    """How to get hold of a network; an empty loader means the one in memory."""

    group: str
    loader: str = ""
    name: str = ""
    folders: dict[str, str] = {}
    options: Mapping[str, Setting] = {}
    builder: Builder | None = None
    """Gives the one in memory again."""


class Order(msgspec.Struct, frozen=True):
    """Readings that a plugin's process is to take; it answers with an `Ended` for each, in order."""

    network: NetworkPlace
    part_seed: int
    readings: list[Reading]
    limits: Limits


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The plugin is imported."""


# -- a guarded child and whoever watches it ------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The next piece of work begins."""

    piece: int


class Found(msgspec.Struct, frozen=True):
    """What a piece of work may return to say what it took; without it, the clock of the watch counts."""

    result: Result
    seconds: float
    shared_seconds: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A piece of work ended by itself."""

    piece: int
    status: Status
    reason: str = ""
    result: Result = {}
    peak_bytes: int = 0
    seconds: float | None = None
    shared_seconds: float = 0.0
    imported: list[str] = []
    """Modules that it imported."""
    device: str = ""
    """What its device is called, where it is not the CPU."""
    fixable: Fixable | None = None


# -- what a guarded process that inherits nothing is to do ---------------------------------------------------


class StepWork(msgspec.Struct, frozen=True, tag="step"):
    """A cell that is no reading."""

    task: Task


class ReadingsWork(msgspec.Struct, frozen=True, tag="readings"):
    """Readings of one network and one plugin, a piece each."""

    source: Source
    network: NetworkPlace
    part_seed: int
    readings: list[Reading]
    shared: bool = True
    """Whether whoever watches answers for the parts that a plugin's measures share."""


class PartWork(msgspec.Struct, frozen=True, tag="part"):
    """A part that genbench computes for plugins."""

    network: NetworkPlace
    part_seed: int
    name: str
    options: dict[str, Any]
    file: str
    """Where it goes."""


class SharedWork(msgspec.Struct, frozen=True, tag="shared"):
    """A part that a function of a plugin computes for the plugin's measures."""

    source: Source
    network: NetworkPlace
    part_seed: int
    function: str


FreshWork = StepWork | ReadingsWork | PartWork | SharedWork


class Fresh(msgspec.Struct, frozen=True):
    """Work for a fresh process, which answers as a forked one does."""

    work: FreshWork
    limits: Limits


def line(message: object) -> bytes:
    """A message as a line."""
    return _ENCODER.encode(message) + b"\n"


def parse(text: bytes | str, wanted: type[T]) -> T:
    """The message in a line."""
    return msgspec.json.decode(text, type=wanted)


def _plain(value: object) -> object:
    """numpy's numbers, which are Python's in all but type."""
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "item"):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} cannot be part of a result")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
