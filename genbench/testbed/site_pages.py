"""What the site shows of a testbed: cubes, their trade-off points, and pairs in the wrong order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genbench.leaderboard.board import Row
from genbench.leaderboard.figures import SLICE_NAMES, cube_figures, scatter
from genbench.scoring.practical import HEADLINE, SLICES, PracticalScore
from genbench.suites.evidence_old import TestbedEvidence
from genbench.testbed.cube_tables import short_count, short_name

if TYPE_CHECKING:
    from genbench.scoring.practical import WorstPair

__all__ = ["TestbedPages"]

_MOST_WORST = 10
_STATISTICS = {"mean": "M", "sd": "SD", "p10": "P10"}


@dataclass(frozen=True)
class TestbedPages:
    """The pages of one testbed suite."""

    __test__ = False  # not a test, whatever pytest makes of its name

    suite_evidence: TestbedEvidence
    kind: str = "testbed"

    def files(self) -> dict[str, bytes]:
        """Nothing: readings of a dozen networks fit into every page."""
        return {}

    def evidence_page(self) -> dict[str, Any]:
        """Every family's cube, and where the pack comes from."""
        evidence = self.suite_evidence
        return {"families": [_family(evidence, name) for name in evidence.cubes], "packed": _packed(evidence)}

    def measure_page(self, row: Row) -> dict[str, Any]:
        """Readings against evidence, and what went wrong."""
        assert row.score is None or isinstance(row.score, PracticalScore)
        parts, wrong = (row.score.parts, row.score.worst) if row.score else ([], [])
        truth = self.suite_evidence.truth.record()
        return {
            "figure": scatter(row, self.suite_evidence),
            "parts": [
                {"part": part, "slice": SLICE_NAMES[part.slice], "statistic": _STATISTICS[part.statistic]}
                for part in parts
            ],
            "wrong": len(wrong),
            "judgements": sum(part.pairs for part in parts if part.statistic == HEADLINE),
            "worst": [_explained(row, pair) for pair in wrong[:_MOST_WORST]],
            "readings": [_reading(reading, truth[reading["subject"]]) for reading in row.record["readings"]],
        }


def _explained(row: Row, pair: WorstPair) -> dict[str, str]:
    """Why a pair counts against the measure, in a sentence."""
    direction = 1.0 if row.record["measure"]["higher_means"] == "worse" else -1.0
    better, worse = short_name(pair.better), short_name(pair.worse)
    digits = 4
    while digits < 17 and f"{pair.reading_better:.{digits}g}" == f"{pair.reading_worse:.{digits}g}":
        digits += 1
    first, second = (f"{direction * value:.{digits}g}" for value in (pair.reading_better, pair.reading_worse))
    return {
        "family": pair.family,
        "slice": SLICE_NAMES[pair.slice],
        "sentence": f"{better} errs less than {worse} ({pair.error_better:.3f} against "
        f"{pair.error_worse:.3f}), but {row.name} reads {first} for {better} and {second} for {worse}.",
        "certainty": f"{pair.certainty:.1f}",
    }


def _reading(reading: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
    error = reading["detail"].get("standard_error")
    return {
        "network": reading["subject"],
        "weights": short_count(truth["weights"]),
        "value": "" if reading["value"] is None else f"{reading['value']:.6g}",
        "standard_error": f"{error:.2g}" if isinstance(error, (int, float)) else "",
        "status": reading["status"],
        "reason": reading["reason"],
        "truth": [truth[name][HEADLINE] for name in SLICES],
        "seconds": reading["seconds"] + reading["shared_seconds"],
    }


def _family(evidence: TestbedEvidence, name: str) -> dict[str, Any]:
    point = evidence.trade_offs[name]
    figures = cube_figures(evidence.cubes[name], point)
    return {
        "name": name,
        "models": figures["models"],
        "figures": figures,
        "trade_off": [
            ("generalization bound", f"{point['generalization_bound']:.3f}"),
            ("diversity bound", f"{point['diversity_bound']:.3f}"),
            ("SSIM, lower bound", f"{point['ssim']:.3f}"),
            ("zero-shot share, upper bound", f"{point['zero_shot']:.3f}"),
            ("model size", f"{short_count(point['model_size'])} weights"),
            ("objective (normalised)", f"{point['objective']:.3f}"),
        ],
        "certified": point["certified"],
    }


def _packed(evidence: TestbedEvidence) -> list[tuple[str, str]]:
    content = evidence.pack.manifest["evidence"]
    data, testbed = content["data"], content["testbed"]
    return [
        ("evidence pack", evidence.pack.version),
        ("pack sha256", evidence.pack.hash),
        ("data", f"{data['dataset']}: {data['seen']} seen and {data['unseen']} unseen classes"),
        ("data sha256", evidence.data_sha256),
        ("degradation", testbed["degradation"]),
        ("heads of unseen classes", testbed["unseen_head"]),
        ("rebuild and compare", f"genbench pack verify --suite {evidence.suite.name}"),
    ]
