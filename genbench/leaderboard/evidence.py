"""What a board's measures are judged against: the cubes of a suite's shipped evidence pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.leaderboard.provenance import bootstrap_seed
from genbench.suites import TestbedSuite, load_suite
from genbench.testbed.pack import Pack, find_pack

if TYPE_CHECKING:
    import xarray as xr

    from genbench.scoring.practical import PracticalScore, PracticalTruth

__all__ = ["SuiteEvidence", "suite_evidence"]

_CUBE = "cube.nc"
_DIGITS = 6
"""Of a trade-off point: solvers on two machines agree to fewer digits than a float has."""


@dataclass(frozen=True)
class SuiteEvidence:
    """A suite, its pack, and what follows from the two."""

    suite: TestbedSuite
    pack: Pack

    @cached_property
    def cubes(self) -> dict[str, xr.Dataset]:
        """The cube of every family, with the suite's kappa and backbones; its bytes are checked."""
        from genbench.scoring.cube import read_cube
        from genbench.testbed.cubes import only, with_kappa

        cubes = {}
        for family, backbones in self.suite.families().items():
            entry = self.pack.manifest["cubes"][family]["files"][_CUBE]
            path = self.pack.folder / entry["file"]
            if file_hash(path) != entry["sha256"]:
                raise UserError(
                    f"{path} is damaged: its sha256 is not the one in its pack; reinstall genbench"
                )
            cubes[family] = only(with_kappa(read_cube(path), self.suite.testbed["kappa"]), backbones)
        return cubes

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

    def score(self, record: Mapping[str, Any]) -> PracticalScore | None:
        """Judge the readings of a record."""
        direction = 1.0 if record["measure"]["higher_means"] == "worse" else -1.0
        return self.truth.score(
            {
                reading["subject"]: direction * reading["value"]
                for reading in record["readings"]
                if reading["value"] is not None
            }
        )


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
    pack = find_pack(suite) if isinstance(suite, TestbedSuite) else None
    if pack is None or not isinstance(suite, TestbedSuite):
        raise UserError(
            f"suite {name!r} ships no evidence pack, so its records cannot be checked; boards are for suites "
            "that everyone can score against"
        )
    return SuiteEvidence(suite, pack)
