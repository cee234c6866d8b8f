"""The kind `population`: networks trained from scratch over a grid of settings (000–003)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from msgspec import structs, to_builtins

from genbench.engine.cells import Cell, NetworkCells, Outcome, Result
from genbench.engine.store import Store
from genbench.packs.build import Comparison, Draft
from genbench.packs.pack import Pack
from genbench.population.evidence import PopulationEvidence
from genbench.population.fresh import fresh_population
from genbench.population.manifest import PopulationManifest
from genbench.population.plan import PopulationPlan, missing_data, network_labels, plan_population
from genbench.population.score_record import PopulationRecord, population_record
from genbench.population.suite import PopulationSuite, read_population
from genbench.scoring.population import PopulationScore, ScoreNumber
from genbench.suites.evidence import Facts
from genbench.suites.fields import Toml
from genbench.suites.kind import INTERVAL_TOLERANCES, Kind
from genbench.suites.plan import CellForecast, TrainingPass
from genbench.suites.suite import SuiteFields

__all__ = ["PopulationKind"]

_WEIGHTS = "final.safetensors"


class PopulationKind(Kind):
    """One network per combination of a grid, trained in stacks."""

    noun = "a population of networks"
    tables = ("data", "train", "grid", "design")
    manifest = PopulationManifest
    slow_scores = True
    score_type = PopulationRecord
    # An iteration comes near to the optimum.
    tolerances: ClassVar[Mapping[str, float]] = {**INTERVAL_TOLERANCES, "optimum": 1e-6}

    def read(self, path: Path, content: Toml, common: SuiteFields) -> PopulationSuite:
        """Tables [data], [train], [grid] and [design]."""
        return read_population(path, content, common)

    def plan(self, suite: PopulationSuite, pack: Pack | None = None) -> PopulationPlan:
        """Pools of images, stacks of networks, their gaps."""
        return plan_population(suite, pack)

    def missing(self, suite: PopulationSuite) -> list[str]:
        """Data sets."""
        return missing_data(suite)

    def fresh(self, suite: PopulationSuite, draw: Random, networks: int) -> PopulationSuite:
        """Two values of each setting."""
        return fresh_population(suite, draw, networks)

    def forecast(self, suite: PopulationSuite, cells: Sequence[Cell]) -> Mapping[str, CellForecast]:
        """From the shapes of the stacks, and a short probe where much is to be trained."""
        from genbench.population.forecast import forecast_cells

        return forecast_cells(suite, cells)

    def training_pass(self, suite: PopulationSuite, network: NetworkCells) -> TrainingPass:
        """By the same formula."""
        from genbench.population.forecast import training_pass

        return training_pass(suite, network)

    def evidence(
        self, plan: PopulationPlan, suite: PopulationSuite, store: Store, outcomes: Mapping[str, Outcome]
    ) -> PopulationEvidence:
        """Gaps and training of every network."""
        found = {}
        for one in plan.networks:
            assert one.truth is not None
            place = plan.places[one.label]
            found[one.label] = {
                **_of_one(outcomes[one.network.key].result, place),
                **_of_one(outcomes[one.truth.key].result, place),
            }
        settings = {one.label: one.hyperparameters for one in plan.networks}
        return PopulationEvidence(suite, plan.pack, settings, found)

    def lacking(self, pack: Pack, suite: PopulationSuite) -> Iterator[str]:
        """A stack, or what became of its networks."""
        known, listed = set(network_labels(suite)), []
        for place, block in enumerate(pack.read_as(PopulationManifest).blocks):
            for what, result in (("training", block.trained.result), ("evidence", block.judged.result)):
                found = result.get("networks")
                if found is not None and not (isinstance(found, list) and len(found) == len(block.subjects)):
                    yield f"the {what} of all networks of stack {place}"
            if _WEIGHTS not in block.trained.files or not known.issuperset(block.subjects):
                yield f"the networks of stack {place}"
            listed += block.subjects
        if sorted(listed) != sorted(known):
            yield "every network once"

    def packed_evidence(self, suite: PopulationSuite, pack: Pack) -> PopulationEvidence:
        """The same out of the manifest."""
        found = {}
        for block in pack.read_as(PopulationManifest).blocks:
            trained, judged = block.trained.result, block.judged.result
            for place, label in enumerate(block.subjects):
                found[label] = {**_of_one(trained, place), **_of_one(judged, place)}
        settings = {one.label: one.hyperparameters for one in self.plan(suite, pack).networks}
        return PopulationEvidence(suite, pack, settings, found)

    def weight_hashes(self, pack: Pack, networks: Sequence[str]) -> dict[str, str]:
        """By stack of networks."""
        files = [block.trained.files[_WEIGHTS] for block in pack.read_as(PopulationManifest).blocks]
        return {file.file: file.sha256 for file in files}

    def fill_pack(self, draft: Draft, plan: PopulationPlan, store: Store) -> None:
        """Weights, traces and evidence per stack."""
        from genbench.population.packing import fill_pack

        fill_pack(draft, plan, store)

    def compare_pack(self, pack: Pack, plan: PopulationPlan, store: Store) -> list[Comparison]:
        """Every stack."""
        from genbench.population.packing import compare

        return compare(pack, plan, store)

    def recorded(self, score: PopulationScore) -> PopulationRecord:
        """Every number, and where it fails."""
        return population_record(score)

    def slow_part(self, score: PopulationRecord) -> PopulationRecord | None:
        """All but the sign-error, which boards rank by; without environments there is nothing slow."""
        slow = [row for row in score.scores if ScoreNumber(*row).score != "sign_error"]
        return structs.replace(score, scores=slow) if slow else None

    def comparable(self, score: PopulationRecord) -> Any:
        """Numbers by score, target, part and statistic."""
        numbers = {}
        for row in score.scores:
            one = ScoreNumber(*row)._asdict()
            if one["score"] == "affine_oracle":
                one["optimum"] = one.pop("value")
            numbers["/".join(row[:4])] = one
        return {
            **to_builtins(score),
            "scores": numbers,
            # Which of two equally bad environments comes first is a matter of the last bit.
            "worst": sorted(one.sign_error for one in score.worst),
        }


def _of_one(result: Result, place: int) -> Facts:
    """What the result of a block says of one of its networks; nothing if it failed."""
    common = {key: value for key, value in result.items() if key != "networks"}
    return {**common, **(result["networks"][place] if "networks" in result else {})}
