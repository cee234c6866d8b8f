"""The kind `population`: networks trained from scratch over a grid of settings (000–003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from genbench.engine.cells import Outcome
from genbench.engine.store import Store
from genbench.packs.build import Comparison, Draft
from genbench.packs.pack import Pack
from genbench.population.evidence import PopulationEvidence
from genbench.population.manifest import PopulationManifest
from genbench.population.plan import PopulationPlan, plan_population
from genbench.population.score_record import PopulationRecord
from genbench.population.suite import PopulationSuite, read_population
from genbench.scoring.population import FIELDS
from genbench.suites.kind import INTERVAL_TOLERANCES, Kind

__all__ = ["PopulationKind"]

_WEIGHTS = "final.safetensors"


class PopulationKind(Kind):
    """One network per combination of a grid, trained in stacks."""

    noun = "a population of networks"
    tables = ("data", "train", "grid", "design")
    manifest = PopulationManifest
    reading_seconds = 0.1
    slow_scores = True
    score_type = PopulationRecord
    # An iteration comes near to the optimum.
    tolerances: ClassVar[Mapping[str, float]] = {**INTERVAL_TOLERANCES, "optimum": 1e-6}

    def read(self, path: Path, content: Mapping[str, Any], common: Mapping[str, Any]) -> PopulationSuite:
        """Tables [data], [train], [grid] and [design]."""
        return read_population(path, content, common)

    def plan(self, suite: PopulationSuite, pack: Pack | None = None) -> PopulationPlan:
        """Pools of images, stacks of networks, their gaps."""
        return plan_population(suite, pack)

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

    def comparable(self, score: Mapping[str, Any]) -> Any:
        """Numbers by score, target, part and statistic."""
        numbers = [dict(zip(FIELDS, row, strict=False)) for row in score["scores"]]
        for one in numbers:
            if one["score"] == "affine_oracle":
                one["optimum"] = one.pop("value")
        return {
            **score,
            "scores": {
                "/".join(map(str, row[:4])): number
                for row, number in zip(score["scores"], numbers, strict=True)
            },
            # Which of two equally bad environments comes first is a matter of the last bit.
            "worst": sorted(one["sign_error"] for one in score["worst"]),
        }


def _of_one(result: Mapping[str, Any], place: int) -> dict[str, Any]:
    """What the result of a block says of one of its networks; nothing if it failed."""
    common = {key: value for key, value in result.items() if key != "networks"}
    return {**common, **(result["networks"][place] if "networks" in result else {})}
