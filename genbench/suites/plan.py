"""How the networks of a suite are made and their truths are found: cells, without the readings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from genbench.engine.cells import Cell, NetworkCells
from genbench.packs.pack import Pack

__all__ = ["CellForecast", "EvidencePlan", "TrainingPass"]


@dataclass(frozen=True, kw_only=True)
class EvidencePlan(ABC):
    """All cells of a suite but the readings."""

    training_data: Cell
    """What a reading opens beside its network; nothing held out is in it."""
    networks: Sequence[NetworkCells]
    loader: str
    """ "module:function" that gives a worker a network, from its cell and the training data."""
    pack: Pack | None = None
    """Where networks and truths come from, if they are not made here."""
    missing: tuple[str, ...] = ()
    """What is not on this machine, and what to do about it; a plan can be made without it, not run."""

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Parents before children."""

    def with_all_kept(self) -> Self:
        """The same plan, with everything that a pack needs in the store at its end."""
        return self


@dataclass(frozen=True)
class TrainingPass:
    """All training images of one network, once forward and once backward."""

    seconds: float
    """Of one core, as far as can be told without a look at the network."""
    images: int
    weights: int = 0
    kept: int = 0
    """Bytes that a forward pass keeps of one image for its backward pass."""
    process: int = 0
    """Bytes of a process that has loaded such a network."""


@dataclass(frozen=True)
class CellForecast:
    """What one cell will take."""

    seconds: float
    """Of one core."""
    forward_passes: int = 0
    """Images that go through a network, forward or in training."""
    disk_bytes: int = 0
    memory_bytes: int = 0
