"""The kind `collection`: networks that someone trained elsewhere, with their truths in a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from genbench.collection.evidence import CollectionEvidence
from genbench.collection.plan import CollectionPlan, plan_collection
from genbench.collection.suite import CollectionSuite, read_collection
from genbench.engine.cells import Outcome
from genbench.engine.store import Store
from genbench.packs.pack import Pack
from genbench.population.score_record import PopulationRecord, population_record
from genbench.scoring.population import PopulationScore
from genbench.suites.fields import Toml
from genbench.suites.kind import Kind
from genbench.suites.suite import SuiteFields

__all__ = ["CollectionKind"]


class CollectionKind(Kind):
    """One network per row of a table. What is in files already needs no evidence pack."""

    noun = "a collection of networks"
    tables = ("networks", "data")
    score_type = PopulationRecord

    def read(self, path: Path, content: Toml, common: SuiteFields) -> CollectionSuite:
        """Tables [networks] and [data], and the table of networks."""
        return read_collection(path, content, common)

    def plan(self, suite: CollectionSuite, pack: Pack | None = None) -> CollectionPlan:
        """Training data and networks."""
        return plan_collection(suite)

    def serves(self, pack: Pack, suite: CollectionSuite) -> bool:
        """Never: a pack of the same name is of another suite."""
        return False

    def evidence(
        self, plan: CollectionPlan, suite: CollectionSuite, store: Store, outcomes: Mapping[str, Outcome]
    ) -> CollectionEvidence:
        """What the table says, and what was seen when the networks were read."""
        seen = ("parameters", "classes", "tried", "tried_accuracy")
        truths = {row.name: row.found for row in suite.table.rows}
        found = {}
        for one in plan.networks:
            result = outcomes[one.network.key].result
            found[one.label] = {**truths[one.label], **{key: result[key] for key in seen if key in result}}
        settings = {one.label: one.hyperparameters for one in plan.networks}
        return CollectionEvidence(suite, plan.pack, settings, found)

    def recorded(self, score: PopulationScore) -> PopulationRecord:
        """As of a population."""
        return population_record(score)
