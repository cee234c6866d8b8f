"""What a board's measures are judged against: the evidence pack that ships for a suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.packs.pack import Pack, find_pack
from genbench.records.provenance import bootstrap_seed, weight_hashes
from genbench.suites import PopulationSuite, Suite, TestbedSuite, load_suite

if TYPE_CHECKING:
    import xarray as xr

    from genbench.scoring.network_table import NetworkTable
    from genbench.scoring.population import PopulationScore
    from genbench.scoring.practical import PracticalScore, PracticalTruth

__all__ = [
    "PopulationEvidence",
    "ScoreColumn",
    "SuiteEvidence",
    "TestbedEvidence",
    "suite_evidence",
]

_CUBE = "cube.nc"
_DIGITS = 6
"""Of a trade-off point: solvers on two machines agree to fewer digits than a float has."""

Score = Any
"""A `PracticalScore` or a `PopulationScore`: both have value, low, high, dropped, ties_with and record."""


@dataclass(frozen=True)
class ScoreColumn:
    """A number that boards show beside the headline."""

    label: str
    about: str
    number: Callable[[Score], float | None]


@dataclass(frozen=True)
class SuiteEvidence(ABC):
    """A suite, its pack, and what follows from the two."""

    suite: Suite
    pack: Pack

    @property
    @abstractmethod
    def subjects(self) -> list[str]:
        """The networks, in the suite's order."""

    @property
    def networks(self) -> dict[str, str]:
        """sha256 of the weights."""
        return weight_hashes(self.pack, self.subjects)

    @property
    def data_sha256(self) -> str:
        """Of all images."""
        return str(self.pack.manifest["data_hash"])

    @property
    @abstractmethod
    def columns(self) -> list[ScoreColumn]:
        """What boards show beside the headline."""

    @property
    @abstractmethod
    def meaning(self) -> list[str]:
        """Sentences on what the sign-error of this suite is."""

    @abstractmethod
    def judge(self, records: Sequence[Mapping[str, Any]]) -> list[Score | None]:
        """The scores of records, from their readings alone; None where there are too few."""


@dataclass(frozen=True)
class TestbedEvidence(SuiteEvidence):
    """Cubes."""

    __test__ = False  # not a test, whatever pytest makes of its name

    suite: TestbedSuite

    @property
    def subjects(self) -> list[str]:
        """The backbones."""
        return self.suite.backbones

    @cached_property
    def cubes(self) -> dict[str, xr.Dataset]:
        """The cube of every family, with the suite's kappa and backbones; its bytes are checked."""
        from genbench.testbed.cube import read_cube
        from genbench.testbed.cube_steps import only, with_kappa

        kappa = self.suite.testbed.kappa
        return {
            family: only(
                with_kappa(
                    read_cube(self.pack.file(self.pack.manifest["cubes"][family]["files"][_CUBE])), kappa
                ),
                backbones,
            )
            for family, backbones in self.suite.families().items()
        }

    @cached_property
    def truth(self) -> PracticalTruth:
        """The slices with their resamples, as `genbench run` draws them."""
        from genbench.scoring.practical import PracticalTruth

        return PracticalTruth.of(self.cubes, seed=bootstrap_seed(self.suite.name))

    @cached_property
    def trade_offs(self) -> dict[str, dict[str, Any]]:
        """Family to its trade-off point."""
        from genbench.testbed.tradeoff import trade_off

        return {family: _rounded(trade_off(cube).record()) for family, cube in self.cubes.items()}

    @property
    def columns(self) -> list[ScoreColumn]:
        """Noise-aware, and both slices."""

        def slice_value(name: str) -> Callable[[PracticalScore], float]:
            return lambda score: score.slice_value(name)

        return [
            ScoreColumn(
                "noise-aware",
                "Pairs weigh by how surely the truth orders them",
                lambda score: score.noise_aware,
            ),
            ScoreColumn("robustness", "Degraded images, no unseen classes", slice_value("robustness")),
            ScoreColumn("zero-shot", "Clean images, more and more unseen classes", slice_value("zero_shot")),
        ]

    @property
    def meaning(self) -> list[str]:
        """Of the practical sign-error."""
        return [
            "Sign-error: the share of pairs of networks that a measure orders against the held-out truth.",
            "0 is perfect, ½ a coin, 1 always wrong.",
            "Its 95 % interval is over resampled held-out images; it does not speak of other networks.",
        ]

    def judge(self, records: Sequence[Mapping[str, Any]]) -> list[Score | None]:
        """Practical sign-errors."""
        return [
            self.truth.score(
                {
                    reading["subject"]: _direction(record) * reading["value"]
                    for reading in record["readings"]
                    if reading["value"] is not None
                }
            )
            for record in records
        ]


@dataclass(frozen=True)
class PopulationEvidence(SuiteEvidence):
    """Networks with their hyperparameters and gaps."""

    suite: PopulationSuite

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Network to its row of the record table, without readings; in the suite's order."""
        from genbench.population.plan import plan_population
        from genbench.population.table import network_row

        known = {}
        for block in self.pack.manifest["blocks"]:
            trained, judged = (block[part]["result"] for part in ("trained", "judged"))
            common = {key: value for key, value in trained.items() if key != "networks"}
            for place, label in enumerate(block["subjects"]):
                known[label] = {**common, **trained["networks"][place], **judged["networks"][place]}
        plan = plan_population(self.suite, self.pack)
        return {s.label: network_row(s.hyperparameters, known[s.label]) for s in plan.subjects}

    @property
    def subjects(self) -> list[str]:
        """The points of the grid."""
        return list(self.rows)

    @cached_property
    def shifted_accuracy(self) -> dict[str, float]:
        """ "corruption.severity" to the mean accuracy of the converged networks."""
        kept = [
            judged["shifted_accuracy"]
            for block in self.pack.manifest["blocks"]
            for trained, judged in zip(
                block["trained"]["result"]["networks"], block["judged"]["result"]["networks"], strict=True
            )
            if trained["converged"]
        ]
        return {key: sum(one[key] for one in kept) / len(kept) for key in kept[0]}

    @property
    def columns(self) -> list[ScoreColumn]:
        """The scores of the papers."""
        from genbench.scoring.population import SHOWN, Column

        def shown(column: Column) -> Callable[[PopulationScore], float | None]:
            return lambda score: score.shown(column).get("value")

        return [ScoreColumn(column.label, column.about, shown(column)) for column in SHOWN]

    @property
    def meaning(self) -> list[str]:
        """Of the sign-error over environments."""
        return [
            "Sign-error: how often a measure orders the gaps of two networks wrongly, where one "
            "hyperparameter differs and the held-out images say surely which gap is larger; the mean over "
            "all such pairs of settings (environments).",
            "0 is perfect, ½ a coin, 1 always wrong.",
            "Its 95 % interval is over resampled seeds.",
        ]

    def table(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The record table: hyperparameters, gaps and the readings of `records`."""
        readings = {
            f"complexity.{record['measure']['name']}": {r["subject"]: r["value"] for r in record["readings"]}
            for record in records
        }
        return [
            {**row, **{name: values.get(label) for name, values in readings.items()}}
            for label, row in self.rows.items()
        ]

    def records(self, records: Sequence[Mapping[str, Any]]) -> NetworkTable:
        """The table of `records` as the scores take it."""
        import pandas as pd

        from genbench.scoring.columns import Columns
        from genbench.scoring.table_files import table_from_frame

        def names(field: str, value: object) -> tuple[str, ...]:
            chosen = [record["measure"]["name"] for record in records if record["measure"][field] == value]
            return tuple(f"complexity.{name}" for name in chosen)

        columns = Columns(
            higher_is_better=names("higher_means", "better"), logarithm=names("logarithm", True)
        )
        return table_from_frame(pd.DataFrame(self.table(records)), columns, source=self.suite.name)

    def judge(self, records: Sequence[Mapping[str, Any]]) -> list[Score | None]:
        """Every score, from the readings; a measure's are the same whatever stands beside it."""
        from genbench.scoring.all_scores import score_table
        from genbench.scoring.population import population_scores

        valued = [record for record in records if any(r["value"] is not None for r in record["readings"])]
        if not valued:
            return [None] * len(records)
        found = population_scores(score_table(self.records(valued)))
        return [found.get(record["measure"]["name"]) for record in records]


def _direction(record: Mapping[str, Any]) -> float:
    return 1.0 if record["measure"]["higher_means"] == "worse" else -1.0


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        # Significant digits: a point holds shares and weight counts alike.
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value


@cache
def suite_evidence(name: str) -> SuiteEvidence:
    """The evidence that ships for the suite `name`."""
    suite = load_suite(name)
    pack = find_pack(suite)
    if pack is None:
        raise UserError(
            f"suite {name!r} ships no evidence pack, so its records cannot be checked; boards are for suites "
            "that everyone can score against"
        )
    if isinstance(suite, TestbedSuite):
        return TestbedEvidence(suite, pack)
    assert isinstance(suite, PopulationSuite)
    return PopulationEvidence(suite, pack)
