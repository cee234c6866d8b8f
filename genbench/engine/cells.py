"""The unit of work and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from genbench.engine.compute import Compute, current
from genbench.keys import Inputs, cell_key
from genbench.plugin.contract import Detail

__all__ = [
    "KEPT",
    "Assignment",
    "Cause",
    "Cell",
    "Cost",
    "Fixable",
    "Limits",
    "NetworkCells",
    "Outcome",
    "Result",
    "Setting",
    "Status",
    "Step",
    "Told",
    "make_cell",
]

Setting = bool | int | float | str
"""A value of a hyperparameter, or of another thing that tells networks apart."""
Result = Mapping[str, Any]
"""The small JSON values that a cell gives and a store keeps; a step says of which type its own are, and
`genbench.engine.steps.read_result` gives them back as that."""
Told = Mapping[str, Any]
"""JSON values that tell a worker where to find code and files, of a type that whoever reads them knows."""


class Status(StrEnum):
    """How a cell ended."""

    OK = "ok"
    NOT_APPLICABLE = "not_applicable"
    """The measure itself said that it does not apply here."""
    FAILED = "failed"
    """It raised an exception."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """Its process ended without an answer."""
    OUT_OF_MEMORY = "out_of_memory"
    INVALID = "invalid"
    """It returned something that is not a finite number."""


KEPT = frozenset({Status.OK, Status.NOT_APPLICABLE, Status.INVALID})
"""Outcomes that are a function of the cell alone and are stored. The others may be the machine's fault
(memory, time, a missing package): they are reported, and tried again by the next run."""


@dataclass(frozen=True)
class Step:
    """A sort of work, and the code that does it; named as text so that planning imports no torch."""

    name: str
    """Part of the key of its cells."""
    function: str
    """ "package.module:function" of inputs, folders of the parents and a folder for its files."""
    title: str
    """What a person reads: "adapt backbone"."""
    seconds: float = 1.0
    """Of a cell on one core of a common machine, until the store has a history of its own."""
    users_code: bool = False
    """Whether it runs a function of the user's, which may hang: it then has the time limit of a reading."""
    autocasts: bool = False
    """Whether `--autocast` lets it compute in bfloat16; then that is one of its inputs."""
    at_home: bool = False
    """Whether it reads files that only this machine is sure to have: a pack, a data set, own networks."""


@dataclass(frozen=True)
class Cell:
    """One piece of work, determined by `inputs`."""

    key: str
    step: Step
    label: str
    """What a person reads: "train depth=2 width=8"."""
    inputs: Inputs
    parents: Mapping[str, str] = field(default_factory=dict)
    """Name to key of the cells whose results this one reads."""
    about: Mapping[str, str | bool] = field(default_factory=dict)
    """For people and queries: what does not determine the result; no part of the key."""
    how: Told = field(default_factory=dict)
    """Neither hashed nor stored."""
    group: str = ""
    """Cells of one group share a loaded subject; a worker stays with a group while it can."""
    together: str = ""
    """Cells of one group with the same mark here go to a worker in one trip; without one, alone."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Name to key of the cells whose folders it opens, where those are not `parents`."""
    on_demand: bool = False
    """Computed only if another cell that is not stored reads it."""

    @property
    def sources(self) -> Mapping[str, str]:
        """Name to key of the cells that must be done before it, and whose folders it is given."""
        return self.reads or self.parents


class Assignment(Struct, frozen=True):
    """A cell to be computed, and where."""

    cell: Cell
    parents: Mapping[str, Path]
    """Name to folder of what it reads."""
    out: Path
    """Folder for its files; there is none for a reading."""


@dataclass(frozen=True)
class NetworkCells:
    """One network of a suite: how it is made and, where that is a cell of its own, how its truth is found."""

    label: str
    hyperparameters: Mapping[str, Setting]
    network: Cell
    """The cell that holds it, alone or with others."""
    truth: Cell | None = None
    identity: str = ""
    """What stands for the network in keys and seeds, where its cell holds others too."""
    place: Mapping[str, Setting] = field(default_factory=dict)
    """Told to the loader beside the folders: which of the cell's networks it is."""

    @property
    def key(self) -> str:
        """What stands for this network alone in keys and seeds."""
        return self.identity or self.network.key


def make_cell(
    step: Step,
    label: str,
    inputs: Inputs | Struct,
    parents: Mapping[str, Cell | str] | None = None,
    **more: Any,
) -> Cell:
    """A cell with the key that its step, inputs and parents' keys give; `more` are fields not in the key.

    A parent may be given as its key alone; `reads` then says which cells are opened in its place.
    """
    inputs = to_builtins(inputs) if isinstance(inputs, Struct) else inputs
    if step.autocasts and current().autocast:
        inputs = {**inputs, "autocast": True}  # eight bits of mantissa: another result, not a rounding
    keys = {
        name: parent if isinstance(parent, str) else parent.key for name, parent in (parents or {}).items()
    }
    return Cell(cell_key(step.name, {**inputs, "parents": keys}), step, label, inputs, keys, **more)


_ONE_THREAD = Compute()


@dataclass(frozen=True)
class Limits:
    """What one cell may use."""

    seconds: float
    memory: int
    """Bytes, on top of what the process holds before the cell's own code starts; of a GPU, the same again."""
    compute: Compute = _ONE_THREAD
    """Its device and its threads."""
    sandbox: bool = True
    """Whether readings are sealed where the kernel can do it."""


@dataclass(frozen=True)
class Cost:
    """What a cell took, and on what. It varies from run to run and is no part of a result."""

    seconds: float = 0.0
    """Wall time of the cell's own code."""
    shared_seconds: float = 0.0
    """Wall time of the shared parts it used, whether they were computed for it or before."""
    peak_bytes: int = 0
    """Largest resident memory of its process."""
    device: str = "cpu"
    """Where it was computed: the type of the device and, of a GPU, its name."""
    threads: int = 1
    sandbox: str = "none"
    """What kept a reading from all but its network: "landlock+seccomp", or nothing."""
    processor_seconds: float = 0.0
    """Of its process, all threads together: what the wall clock says depends on who else is at work. 0 where
    nobody counted."""


class Cause(StrEnum):
    """What a person has to fix."""

    USER = "user"
    """What the message says, which is written for them."""
    DISK = "disk"
    """A disk that is full."""


class Fixable(Struct, frozen=True):
    """Why a step of genbench's failed, where a person can fix that and no other cell would escape it."""

    cause: Cause
    text: str


@dataclass(frozen=True)
class Outcome:
    """How a cell ended, its small result, and what it took."""

    status: Status
    reason: str = ""
    """One line that says why, for everything but ok."""
    result: Result = field(default_factory=dict)
    """Large values are files in the cell's folder."""
    cost: Cost = Cost()
    output: str = ""
    """The tail of what it printed."""
    computed: bool = True
    """False if it was read from the store."""
    fixable: Fixable | None = None

    @property
    def value(self) -> float | None:
        """The number a reading gave, if it gave one."""
        value = self.result.get("value")
        return None if value is None else float(value)

    @property
    def detail(self) -> Detail:
        """What a measure said beside its number: standard error, samples, layers."""
        return dict(self.result.get("detail", {}))
