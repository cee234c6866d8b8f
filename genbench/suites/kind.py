"""The seam: everything that differs between kinds of suites, behind one protocol.

`testbed`, `population` and `collection` implement it, and a plugin may bring another through the hook
`genbench_suite_kinds`. Whoever has a suite asks its kind, and never looks which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from msgspec import Struct, to_builtins

from genbench.engine.cells import Cell, NetworkCells, Outcome
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.packs.build import Comparison, Draft
from genbench.packs.manifest import Manifest
from genbench.packs.pack import Pack
from genbench.plugin.registry import load_registry
from genbench.suites.evidence import Evidence
from genbench.suites.fields import Toml
from genbench.suites.plan import CellForecast, EvidencePlan, TrainingPass
from genbench.suites.suite import Suite, SuiteFields

__all__ = ["INTERVAL_TOLERANCES", "Kind", "kind_of", "load_kind"]


INTERVAL_TOLERANCES = {"low": 5e-3, "high": 5e-3}
"""Of the ends of an interval: BLAS may turn a tie in a single resample."""


class Kind(ABC):
    """One kind of suite. Without state: everything is in the suite, the plan and the evidence."""

    noun: ClassVar[str]
    """What a suite of this kind is, in a sentence: "a population of networks"."""
    tables: ClassVar[tuple[str, ...]]
    """Tables of the TOML file beside [quick]."""
    manifest: ClassVar[type[Manifest]] = Manifest
    """Of its packs."""
    score_type: ClassVar[type[Struct]]
    """Of `recorded`, for the schema of records."""

    fresh_networks: ClassVar[int] = 64
    """As many as a challenge trains, unless it is told."""
    slow_scores: ClassVar[bool] = False
    """Whether scores of recorded measures are better kept than computed again in every run."""
    tolerances: ClassVar[Mapping[str, float]] = INTERVAL_TOLERANCES
    """Name in a `comparable` score to how far another machine may move that number; others agree to 1e-9."""

    # -- suite -------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: Path, content: Toml, common: SuiteFields) -> Suite:
        """The suite in a TOML file; `common` are the fields of `Suite`."""

    # -- networks and truths -----------------------------------------------------------------------------

    @abstractmethod
    def plan(self, suite: Any, pack: Pack | None = None) -> EvidencePlan:
        """The cells of a suite; everything that determines a result is in its key."""

    def missing(self, suite: Any) -> list[str]:
        """What of a suite is not on this machine, and what to do about it; one sentence each."""
        return []

    def fresh(self, suite: Any, draw: Random, networks: int) -> Suite:
        """Part of `suite` on seeds that were drawn just now, with about as many `networks`."""
        raise UserError(f"{suite.name} is {self.noun}, whose networks cannot be trained anew")

    def forecast(self, suite: Any, cells: Sequence[Cell]) -> Mapping[str, CellForecast]:
        """Key to what a cell will take, of those that this kind can tell."""
        return {}

    def training_pass(self, suite: Any, network: NetworkCells) -> TrainingPass:
        """All training images of a network once forward and backward: the unit of what readings take."""
        return TrainingPass(0.05, 1000)

    @abstractmethod
    def evidence(self, plan: Any, suite: Any, store: Store, outcomes: Mapping[str, Outcome]) -> Evidence:
        """What the finished cells of a plan say."""

    # -- packs -------------------------------------------------------------------------------------------

    def serves(self, pack: Pack, suite: Any) -> bool:
        """Whether a pack is evidence for `suite`."""
        return pack.manifest.evidence == suite.plain_content() and not suite.quick

    def lacking(self, pack: Pack, suite: Any) -> Iterator[str]:
        """What a manifest should list for `suite` and does not: "the network b0"."""
        return iter(())

    def require_cubes(self, suite: Any) -> None:
        """Refuse, before anything is computed, what `genbench cube` and `genbench tradeoff` cannot show."""
        raise UserError(f"{suite.name} is {self.noun}, which has no cube; choose a testbed such as mini")

    def packed_evidence(self, suite: Any, pack: Pack) -> Evidence:
        """What a pack says, without computing anything."""
        raise UserError(f"suites such as {suite.name} have no evidence packs")

    def weight_hashes(self, pack: Pack, networks: Sequence[str]) -> dict[str, str]:
        """sha256 of the weights in a pack: by network, or by whatever they are stored in."""
        return {}

    def fill_pack(self, draft: Draft, plan: Any, store: Store) -> None:
        """Put networks and truths of a finished plan into a new pack; its manifest must say `data_hash`,
        the sha256 of all images."""
        raise UserError("suites of this kind have no evidence packs")

    def compare_pack(self, pack: Pack, plan: Any, store: Store) -> list[Comparison]:
        """Every part of a pack against the same made anew."""
        return []

    # -- records -----------------------------------------------------------------------------------------

    @abstractmethod
    def recorded(self, score: Any) -> Struct:
        """A score as a record keeps it: of `score_type`."""

    def slow_part(self, score: Any) -> Struct | None:
        """What of a recorded score is too slow to be computed at every check of a board, if anything."""
        return None

    def comparable(self, score: Any) -> Any:
        """A recorded score in which every number has a name, so that two can be compared field by field."""
        return to_builtins(score)


def kind_of(suite: Suite) -> Kind:
    """The kind of a suite."""
    return load_kind(suite.kind)


def load_kind(name: str) -> Kind:
    """A kind by its name."""
    kind = load_registry().get("suite_kinds", name).item.create()
    assert isinstance(kind, Kind), f"create() of the suite kind {name!r} gave no genbench.suites.kind.Kind"
    return kind
