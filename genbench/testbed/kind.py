"""The kind `testbed`: pretrained backbones over zero-shot share × SSIM × model size (004)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import ClassVar

import msgspec

from genbench.engine.cells import Cell, NetworkCells, Outcome, Status
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.packs.build import Comparison, Draft
from genbench.packs.pack import Pack
from genbench.scoring.practical import PracticalScore
from genbench.suites.fields import Toml
from genbench.suites.kind import INTERVAL_TOLERANCES, Kind
from genbench.suites.plan import CellForecast, TrainingPass
from genbench.suites.suite import SuiteFields
from genbench.testbed.evidence import TestbedEvidence, Training
from genbench.testbed.fresh import fresh_testbed
from genbench.testbed.manifest import CUBE_FILE, TestbedManifest
from genbench.testbed.plan import (
    ADAPTED,
    FEATURES,
    JUDGED,
    NETWORK_JUDGED,
    NOISE,
    TestbedPlan,
    missing_parts,
    plan_testbed,
)
from genbench.testbed.score_record import PracticalRecord, practical_record
from genbench.testbed.suite import TestbedSuite, read_testbed
from genbench.testbed.tradeoff_point import TradeOff

__all__ = ["TestbedKind"]

_WEIGHTS = "final.safetensors"
_PROBED = frozenset({ADAPTED, FEATURES, JUDGED, NETWORK_JUDGED, NOISE})
"""Steps whose cells differ so much in size that only a look at each tells how long it takes."""


class TestbedKind(Kind):
    """Backbones adapted to the seen classes and tested on more classes and on worse images."""

    __test__ = False  # not a test, whatever pytest makes of its name

    noun = "a testbed"
    tables = ("data", "testbed", "adapt", "adaptations")
    manifest = TestbedManifest
    score_type = PracticalRecord
    fresh_networks = 6
    # Sureness is in standard deviations of a bootstrap, as intervals are.
    tolerances: ClassVar[Mapping[str, float]] = {**INTERVAL_TOLERANCES, "certainty": 5e-3}

    def read(self, path: Path, content: Toml, common: SuiteFields) -> TestbedSuite:
        """Tables [data], [testbed], [adapt] and [[adaptations]]."""
        return read_testbed(path, content, common)

    def plan(self, suite: TestbedSuite, pack: Pack | None = None) -> TestbedPlan:
        """Images, noise, adapted networks, features, cubes, trade-off points."""
        return plan_testbed(suite, pack)

    def missing(self, suite: TestbedSuite) -> list[str]:
        """Data and weights."""
        return list(missing_parts(suite))

    def fresh(self, suite: TestbedSuite, draw: Random, networks: int) -> TestbedSuite:
        """Some backbones, adapted with another seed."""
        return fresh_testbed(suite, draw, networks)

    def forecast(self, suite: TestbedSuite, cells: Sequence[Cell]) -> Mapping[str, CellForecast]:
        """From a short probe of every backbone, if any cell needs one."""
        from genbench.testbed.forecast import forecast_cells, image_counts, probe

        if not any(cell.step in _PROBED for cell in cells):
            return {}
        names = {str(cell.inputs["backbone"]) for cell in cells if "backbone" in cell.inputs}
        return forecast_cells(suite, cells, probe(sorted(names)), image_counts(suite))

    def training_pass(self, suite: TestbedSuite, network: NetworkCells) -> TrainingPass:
        """By the published size of the backbone."""
        from genbench.testbed.forecast import training_pass

        return training_pass(suite, network)

    def evidence(
        self, plan: TestbedPlan, suite: TestbedSuite, store: Store, outcomes: Mapping[str, Outcome]
    ) -> TestbedEvidence:
        """Cubes and trade-off points out of the store."""
        from genbench.testbed.cube_steps import chosen_cube

        for family in plan.families.values():
            for cell in (family.cube, family.tradeoff):
                if outcomes[cell.key].status is not Status.OK:
                    raise UserError(f"{cell.label} could not be made: {outcomes[cell.key].reason}")
        cubes, solved = {}, {}
        for name, family in plan.families.items():
            file = store.folder(family.cube.key) / CUBE_FILE
            cubes[name] = chosen_cube(file, suite.testbed.kappa, family.backbones, suite.adaptation_names)
            solved[name] = msgspec.convert(outcomes[family.tradeoff.key].result, TradeOff)
        # Networks are made on demand: where nothing had to be, the store still knows how they ended.
        stored = {one.label: store.manifest(one.network.key) for one in plan.networks}
        training = {
            name: msgspec.convert(manifest["result"], Training)
            for name, manifest in stored.items()
            if manifest is not None
        }
        return TestbedEvidence(suite, plan.pack, cubes, solved, training)

    def require_cubes(self, suite: TestbedSuite) -> None:
        """Every testbed has cubes."""

    def serves(self, pack: Pack, suite: TestbedSuite) -> bool:
        """The same in everything, perhaps of fewer backbones or adaptations."""
        own, asked = dict(pack.manifest.evidence), dict(suite.plain_content())
        testbed, known = own.pop("testbed", None), own.pop("adaptations", [])
        # Somebody's file: where these should be there may be anything.
        if not isinstance(testbed, dict) or not isinstance(known, list):
            return False
        testbed, asked_for = dict(testbed), dict(asked.pop("testbed"))
        have, want = testbed.pop("backbones", None), asked_for.pop("backbones")
        if not isinstance(have, list) or testbed != asked_for:
            return False
        wanted = asked.pop("adaptations", [])
        there = all(one in known for one in wanted) and bool(known) == bool(wanted)
        return all(one in have for one in want) and there and own == asked and not suite.quick

    def lacking(self, pack: Pack, suite: TestbedSuite) -> Iterator[str]:
        """A network, how it was trained, or a cube."""
        manifest = pack.read_as(TestbedManifest)
        for one in suite.members:
            entry = manifest.networks.get(one.name)
            if entry is None or _WEIGHTS not in entry.files:
                yield f"the network {one.name}"
                return
            try:
                msgspec.convert(entry.result, Training)
            except msgspec.ValidationError:
                yield f"the training of {one.name}"
        for family in suite.families():
            cube = manifest.cubes.get(family)
            if cube is None or CUBE_FILE not in cube.files:
                yield f"the cube of {family}"

    def packed_evidence(self, suite: TestbedSuite, pack: Pack) -> TestbedEvidence:
        """Cubes out of the pack; their bytes are checked."""
        from genbench.testbed.cube_steps import chosen_cube

        manifest, kappa = pack.read_as(TestbedManifest), suite.testbed.kappa
        shipped = manifest.cubes
        cubes = {
            family: chosen_cube(
                pack.file(shipped[family].files[CUBE_FILE]), kappa, backbones, suite.adaptation_names
            )
            for family, backbones in suite.families().items()
        }
        training = {
            one.name: msgspec.convert(manifest.networks[one.name].result, Training) for one in suite.members
        }
        return TestbedEvidence(suite, pack, cubes, training=training)

    def weight_hashes(self, pack: Pack, networks: Sequence[str]) -> dict[str, str]:
        """By network."""
        entries = pack.read_as(TestbedManifest).networks
        return {name: entries[name].files[_WEIGHTS].sha256 for name in networks}

    def fill_pack(self, draft: Draft, plan: TestbedPlan, store: Store) -> None:
        """Weights and trace per network, a cube per family."""
        from genbench.testbed.packing import fill_pack

        fill_pack(draft, plan, store)

    def recorded(self, score: PracticalScore) -> PracticalRecord:
        """Sign-errors by family, slice and statistic."""
        return practical_record(score)

    def compare_pack(self, pack: Pack, plan: TestbedPlan, store: Store) -> list[Comparison]:
        """Every network and cube."""
        from genbench.testbed.packing import compare

        return compare(pack, plan, store)
