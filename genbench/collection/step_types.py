"""What the cells of a collection are made from and what comes out of them: one type for plan and step alike.

Inputs are hashed into the keys of cells as JSON, results lie in their manifests. What a worker is told beside
them, where code and files lie on this machine, is `how` and in no key. No torch here: planning needs it.
"""

from __future__ import annotations

from msgspec import Struct

from genbench.collection.suite import DataTable
from genbench.collection.user_code import UserFunction
from genbench.engine.cells import Setting

__all__ = [
    "NetworkHow",
    "NetworkInputs",
    "NetworkResult",
    "TrainingHow",
    "TrainingInputs",
    "TrainingResult",
]


class Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that determines a cell beside its parents; what is None by default is in a key only if given."""

    step: int
    """Code version of the steps."""


class TrainingHow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where training data are found: one of the two."""

    function: UserFunction | None = None
    dataset: str | None = None
    """As this machine finds it: a folder by its whole path."""


class TrainingInputs(Inputs, frozen=True, kw_only=True):
    """The training data of a collection: what a function gives, or a data set and how it is prepared."""

    data: DataTable
    quick: bool
    """Keys contain their parents': what a quick subset computes is never taken for the full suite's."""
    code: str | None = None
    """Of a function: hash of what it depends on."""
    dataset: str | None = None
    version: str | None = None
    content: str | None = None
    """Of a data set: what tells the files found on this machine from others."""
    how: TrainingHow | None = None
    """Told to a worker; no part of a key."""


class TrainingResult(Struct, frozen=True, kw_only=True):
    """Training data that were stored."""

    size: int
    shape: list[int]
    """Of one image, as the networks take it."""


class NetworkHow(Struct, frozen=True, kw_only=True):
    """Where a network's code and weights are found."""

    builder: UserFunction
    weights: str
    initial: str | None


class NetworkInputs(Inputs, frozen=True, kw_only=True):
    """A network out of files."""

    network: str
    hyperparameters: dict[str, Setting]
    builder: str
    code: str
    """Hash of what the builder depends on."""
    weights: str
    """Hash of the file with its weights."""
    initial: str | None
    """The same before training, where there is one."""
    strip: str
    """Removed from the front of the keys in weight files."""
    how: NetworkHow | None = None
    """Told to a worker; no part of a key."""


class NetworkResult(Struct, frozen=True, kw_only=True):
    """A network that was built, given its weights and tried."""

    hyperparameters: dict[str, Setting]
    builder: str
    parameters: int
    classes: int
    tried: int
    """Training examples that it was tried on."""
    tried_accuracy: float
