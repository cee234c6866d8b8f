"""The unit of work and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from genbench.keys import cell_key

__all__ = ["KEPT", "Cell", "Cost", "NetworkCells", "Outcome", "Status", "Step", "make_cell"]


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


@dataclass(frozen=True)
class Cell:
    """One piece of work, determined by `inputs`."""

    key: str
    step: Step
    label: str
    """What a person reads: "train depth=2 width=8"."""
    inputs: Mapping[str, Any]
    """JSON values; the key is a hash of them."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Name to key of the cells whose results this one reads."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for people and queries that do not determine the result; no part of the key."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that tell a worker where to find code; neither hashed nor stored."""
    group: str = ""
    """Cells of one group share a loaded subject; a worker stays with a group while it can."""
    on_demand: bool = False
    """Computed only if another cell that is not stored reads it."""


@dataclass(frozen=True)
class NetworkCells:
    """One network of a suite: how it is made and, where that is a cell of its own, how its truth is found."""

    label: str
    hyperparameters: Mapping[str, Any]
    network: Cell
    truth: Cell | None = None


def make_cell(
    step: Step,
    label: str,
    inputs: Mapping[str, Any] | Struct,
    parents: Mapping[str, Cell] | None = None,
    **more: Any,
) -> Cell:
    """A cell with the key that its step, inputs and parents' keys give; `more` are fields not in the key."""
    inputs = to_builtins(inputs) if isinstance(inputs, Struct) else inputs
    keys = {name: parent.key for name, parent in (parents or {}).items()}
    return Cell(cell_key(step.name, {**inputs, "parents": keys}), step, label, inputs, keys, **more)


@dataclass(frozen=True)
class Cost:
    """What a cell took. It varies from run to run and is no part of a result."""

    seconds: float = 0.0
    """Wall time of the cell's own code."""
    shared_seconds: float = 0.0
    """Wall time of the shared parts it used, whether they were computed for it or before."""
    peak_bytes: int = 0
    """Largest resident memory of its process."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended, its small result, and what it took."""

    status: Status
    reason: str = ""
    """One line that says why, for everything but ok."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Small JSON values; large ones are files in the cell's folder."""
    cost: Cost = Cost()
    output: str = ""
    """The tail of what it printed."""
    computed: bool = True
    """False if it was read from the store."""

    @property
    def value(self) -> float | None:
        """The number a reading gave, if it gave one."""
        value = self.result.get("value")
        return None if value is None else float(value)

    @property
    def detail(self) -> dict[str, Any]:
        """What a measure said beside its number: standard error, samples, layers."""
        return dict(self.result.get("detail", {}))
