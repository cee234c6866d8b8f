"""The kind `linear`: what differs from other kinds of suites, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Struct

from genbench.engine.cells import Cell, NetworkCells, Outcome, Result, Step, make_cell
from genbench.engine.store import Store, read_manifest
from genbench.keys import file_hash
from genbench.packs.build import Comparison, Draft, packed
from genbench.packs.manifest import Manifest, Packed
from genbench.packs.pack import Pack, unpacked_cell
from genbench.packs.record_types import Count, RecordPart, Share
from genbench.scoring.sign_error import sign_error
from genbench.suites.evidence import Evidence, ScoreColumn
from genbench.suites.fields import Count as PositiveCount
from genbench.suites.fields import Table, Toml, Whole, distinct, integer
from genbench.suites.kind import Kind
from genbench.suites.pages import NetworkColumn, Pages
from genbench.suites.plan import CellForecast, EvidencePlan, TrainingPass
from genbench.suites.result import Judged, MeasureResult
from genbench.suites.suite import Suite, SuiteFields

IMAGES = Step("linear_images", "genbench_linear.steps:images", "load digits")
NETWORK = Step("linear_network", "genbench_linear.steps:network", "train a classifier", seconds=0.1)
TRUTHS = Step("linear_truths", "genbench_linear.steps:truths", "test classifiers")
VERSION = 1


class LinearTable(Table, frozen=True):
    """The table [linear] of a suite."""

    train_size: Annotated[int, integer(10)]
    seeds: Annotated[list[Whole], distinct("an integer of at least 0")]
    steps: Annotated[list[PositiveCount], distinct("an integer of at least 1")]


@dataclass(frozen=True)
class LinearSuite(Suite):
    kind = "linear"

    train_size: int = 0
    settings: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Network to its seed and steps."""

    @property
    def networks(self) -> int:
        return len(self.settings)

    def content(self) -> Toml:
        return {"train_size": self.train_size, "settings": self.settings}


@dataclass(frozen=True, kw_only=True)
class LinearPlan(EvidencePlan):
    heldout: Cell
    truths: Cell
    loader: str = "genbench_linear.steps:load"

    def cells(self) -> list[Cell]:
        return [self.training_data, self.heldout, *(one.network for one in self.networks), self.truths]


class LinearRecord(RecordPart, frozen=True):
    """Of linear classifiers: the share of pairs whose held-out errors are ordered wrongly, and its range when
    any one network is left out."""

    value: Share
    low: Share
    high: Share
    pairs: Count
    dropped: Count


@dataclass(frozen=True)
class LinearScore:
    value: float
    low: float
    high: float
    pairs: int
    dropped: int

    def ties_with(self, other: LinearScore) -> bool:
        return self.low <= other.high and other.low <= self.high


class LinearFacts(Struct, frozen=True):
    error: float


@dataclass(frozen=True)
class LinearEvidence(Evidence):
    errors: Mapping[str, float]

    @property
    def known(self) -> Mapping[str, LinearFacts]:
        return {name: LinearFacts(error) for name, error in self.errors.items()}

    @property
    def columns(self) -> list[ScoreColumn]:
        return [ScoreColumn("without one", "The worst when a network is left out", lambda score: score.high)]

    @property
    def counts(self) -> list[ScoreColumn]:
        return [ScoreColumn("pairs", "Pairs of networks", lambda score: score.pairs)]

    @property
    def meaning(self) -> list[str]:
        return ["Sign-error: the share of pairs of classifiers that a measure orders wrongly."]

    def judge(self, results: Sequence[MeasureResult]) -> Judged:
        return Judged([replace(one, score=self._score(one)) for one in results])

    def _score(self, result: MeasureResult) -> LinearScore | None:
        names = [name for name in self.errors if name in result.values]
        if len(names) < 3:
            return None
        readings = np.array([result.direction * result.values[name] for name in names])
        errors = np.array([self.errors[name] for name in names])
        without = [float(sign_error(np.delete(readings, i), np.delete(errors, i))) for i in range(len(names))]
        return LinearScore(
            value=float(sign_error(readings, errors)),
            low=min(without),
            high=max(without),
            pairs=len(names) * (len(names) - 1) // 2,
            dropped=len(self.errors) - len(names),
        )

    def pages(self, judged: Judged) -> LinearPages:
        return LinearPages(self, judged)


class LinearPages(Pages):
    """What every kind must say, and a file beside the board: the pages are the base templates'."""

    evidence: LinearEvidence

    judged_by = "the held-out errors of linear classifiers"
    score_title = "sign-error against held-out errors"
    about_scores = "The bar is the range when any one network is left out."

    @property
    def network_columns(self) -> list[NetworkColumn]:
        return [NetworkColumn("error", lambda network: f"{self.evidence.errors[network]:.3f}")]

    def truth(self, network: str) -> float:
        return self.evidence.errors[network]

    def board_files(self) -> dict[str, str]:
        return {"tsv": "".join(f"{name}\t{error}\n" for name, error in self.evidence.errors.items())}


class LinearManifest(Manifest, frozen=True, kw_only=True):
    """Weights of every classifier, and the errors of all."""

    classifiers: dict[str, Packed]
    truths: Packed


class LinearKind(Kind):
    noun = "a set of linear classifiers"
    tables = ("linear",)
    manifest = LinearManifest
    score_type = LinearRecord

    def read(self, path: Path, content: Toml, common: SuiteFields) -> LinearSuite:
        found = LinearTable.read(path, content, "linear")
        pairs = product(found.seeds, found.steps)
        settings = {f"seed={seed} steps={steps}": (seed, steps) for seed, steps in pairs}
        return LinearSuite(**common, train_size=found.train_size, settings=settings)

    def plan(self, suite: LinearSuite, pack: Pack | None = None) -> LinearPlan:
        about = {"version": VERSION, "quick": suite.quick}
        training, heldout = (
            make_cell(IMAGES, f"{part} images", {**about, "part": part, "size": size})
            for part, size in (("train", suite.train_size), ("heldout", None))
        )
        cells = {}
        for name, (seed, steps) in suite.settings.items():
            inputs = {"version": VERSION, "seed": seed, "steps": steps}
            cells[name] = (
                make_cell(NETWORK, f"train {name}", inputs, {"training": training})
                if pack is None
                else unpacked_cell(pack, name, pack.read_as(LinearManifest).classifiers[name])
            )
        truths = (
            make_cell(
                TRUTHS, "test", {"version": VERSION, "networks": list(cells)}, {"heldout": heldout, **cells}
            )
            if pack is None
            else unpacked_cell(pack, "errors", pack.read_as(LinearManifest).truths)
        )
        networks = [NetworkCells(name, {}, cell, truths) for name, cell in cells.items()]
        if pack is not None:
            heldout = replace(heldout, on_demand=True)
        return LinearPlan(
            training_data=training, heldout=heldout, truths=truths, networks=networks, pack=pack
        )

    def forecast(self, suite: LinearSuite, cells: Sequence[Cell]) -> Mapping[str, CellForecast]:
        steps = {cell.key: cell.inputs["steps"] for cell in cells if cell.step == NETWORK}
        return {key: CellForecast(0.001 * count) for key, count in steps.items()}

    def training_pass(self, suite: LinearSuite, network: NetworkCells) -> TrainingPass:
        return TrainingPass(0.001, suite.train_size)

    def evidence(
        self, plan: LinearPlan, suite: LinearSuite, store: Store, outcomes: Mapping[str, Outcome]
    ) -> LinearEvidence:
        return self._evidence(suite, plan.pack, outcomes[plan.truths.key].result)

    def packed_evidence(self, suite: LinearSuite, pack: Pack) -> LinearEvidence:
        return self._evidence(suite, pack, pack.read_as(LinearManifest).truths.result)

    def recorded(self, score: LinearScore) -> LinearRecord:
        return LinearRecord(**asdict(score))

    def _evidence(self, suite: LinearSuite, pack: Pack | None, truths: Result) -> LinearEvidence:
        return LinearEvidence(suite, pack, {name: truths["errors"][name] for name in suite.settings})

    def weight_hashes(self, pack: Pack, networks: Sequence[str]) -> dict[str, str]:
        entries = pack.read_as(LinearManifest).classifiers
        return {name: entries[name].files["final.safetensors"].sha256 for name in networks}

    def fill_pack(self, draft: Draft, plan: LinearPlan, store: Store) -> None:
        heldout = read_manifest(store.folder(plan.heldout.key))["result"]
        draft.parts.update(
            data_hash=heldout["data_hash"],
            classifiers={
                one.label: packed(
                    store.folder(one.network.key), draft.folder, one.label, ("initial", "final")
                )
                for one in plan.networks
            },
            truths=packed(store.folder(plan.truths.key), draft.folder, "truths", ()),
        )

    def compare_pack(self, pack: Pack, plan: LinearPlan, store: Store) -> list[Comparison]:
        rebuilt = read_manifest(store.folder(plan.truths.key))["result"]["errors"]
        shipped = pack.read_as(LinearManifest).truths.result["errors"]
        hashes = self.weight_hashes(pack, list(shipped))
        return [
            Comparison(
                one.label,
                file_hash(store.folder(one.network.key) / "final.safetensors") == hashes[one.label],
                abs(rebuilt[one.label] - shipped[one.label]),
                0.0,
            )
            for one in plan.networks
        ]
