"""What the site shows of a population: gaps over a grid of hyperparameters, and environments."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from genbench.leaderboard.board import Row
from genbench.leaderboard.figures import environment_errors, gap_scatter
from genbench.scoring.population import SHOWN, PopulationScore
from genbench.suites.evidence_old import PopulationEvidence

__all__ = ["PopulationPages"]

_MOST_WORST = 10
_MOST_REASONS = 3
_LONGEST_REASON = 200
_CARDS = ("max", "90th %", "Ψ IID", "Ψ OOD", "K")
"""The columns that stand at the top of a measure's page; the others are in its table."""
_SHIFT = "gap_ood_"
_HYPERPARAMETER = "hp."


@dataclass(frozen=True)
class PopulationPages:
    """The pages of one population suite."""

    suite_evidence: PopulationEvidence
    rows: Sequence[Row]
    """Of its board."""
    kind: str = "population"

    @cached_property
    def _networks(self) -> list[dict[str, Any]]:
        return list(self.suite_evidence.rows.values())

    @cached_property
    def _converged(self) -> list[dict[str, Any]]:
        return [network for network in self._networks if network["converged"]]

    @cached_property
    def _grid(self) -> dict[str, list[Any]]:
        """Hyperparameter to its values, those with a single one left out."""
        columns = [name for name in self._networks[0] if name.startswith(_HYPERPARAMETER)]
        grid = {name: list(dict.fromkeys(n[name] for n in self._networks)) for name in columns}
        return {
            name.removeprefix(_HYPERPARAMETER): values for name, values in grid.items() if len(values) > 1
        }

    @cached_property
    def _shifts(self) -> list[str]:
        """Kinds of shifted images; the mean over all of them first."""
        found = [name.removeprefix(_SHIFT) for name in self._networks[0] if name.startswith(_SHIFT)]
        return sorted(found, key=lambda name: name != "corrupted")

    @cached_property
    def _environments(self) -> dict[str, dict[str, list[float]]]:
        """Measure to hyperparameter to the sign-error in every environment kept."""
        from genbench.scoring.robust import sign_error_environments

        scored = [row.record for row in self.rows if row.score]
        if not scored:
            return {}
        found: dict[str, dict[str, list[float]]] = {}
        table = sign_error_environments(self.suite_evidence.records(scored))
        for (measure, hyperparameter), part in table.groupby(["measure", "hyperparameter"], sort=False):
            found.setdefault(measure, {})[hyperparameter] = part["sign_error"].tolist()
        return {
            measure: {name: errors[name] for name in self._grid if name in errors}
            for measure, errors in found.items()
        }

    def files(self) -> dict[str, bytes]:
        """The networks that every page draws; as a script, because pages from a folder cannot fetch."""
        networks = self._networks
        runs = {
            "hyperparameters": {
                name: [network[_HYPERPARAMETER + name] for network in networks] for name in self._grid
            },
            "seed": [network["seed"] for network in networks],
            "gap": [round(network["gap"], 5) for network in networks],
            "converged": [int(network["converged"]) for network in networks],
        }
        text = json.dumps(runs, separators=(",", ":"))
        return {"runs.js": f'"use strict";\nconst RUNS = {text};\n'.encode()}

    # -- one measure -------------------------------------------------------------------------------------

    def measure_page(self, row: Row) -> dict[str, Any]:
        """Every score, readings against gaps, and where it fails."""
        score = row.score
        content: dict[str, Any] = {
            "figure": gap_scatter(row, self.suite_evidence.subjects),
            "hyperparameters": list(self._grid),
            "cards": _CARDS,
            "reasons": _reasons(row.record),
            "environments": None,
        }
        if score is None:
            return content
        assert isinstance(score, PopulationScore)
        errors = self._environments[row.name]
        return content | {
            "environments": environment_errors(score, errors),
            "scores": [(column, score.shown(column)) for column in SHOWN],
            "axes": score.by_hyperparameter(),
            "wrong": sum(error > 0.5 for values in errors.values() for error in values),
            "worst": score.worst[:_MOST_WORST],
        }

    # -- the evidence ------------------------------------------------------------------------------------

    def evidence_page(self) -> dict[str, Any]:
        """The grid, its gaps, shifted images, and where the pack comes from."""
        evidence, converged = self.suite_evidence, self._converged
        accuracy = {key: round(value, 4) for key, value in evidence.shifted_accuracy.items()}
        severities = list(dict.fromkeys(key.rpartition(".")[2] for key in accuracy))
        return {
            "converged": len(converged),
            "mean_gap": fmean(network["gap"] for network in converged),
            "test_sizes": sorted({network["test_size"] for network in self._networks}),
            "grid": self._grid,
            "seeds": len({network["seed"] for network in self._networks}),
            "common": {
                name: value for name, value in evidence.suite.train.given().items() if name not in self._grid
            },
            "levels": self._levels(),
            "shifts": [
                (name, _spread([network[_SHIFT + name] for network in converged])) for name in self._shifts
            ],
            "shifted": {
                name: [round(network[_SHIFT + name], 4) for network in self._networks]
                for name in self._shifts
            },
            "severities": severities,
            "corruptions": {
                name: [accuracy.get(f"{name}.{severity}") for severity in severities]
                for name in dict.fromkeys(key.rpartition(".")[0] for key in accuracy)
            },
            "combinations": [(point, _spread(gaps)) for point, gaps in self._combinations().items()],
            "packed": self._packed(),
        }

    def _combinations(self) -> dict[tuple[Any, ...], list[float]]:
        """Values of all hyperparameters to the gaps of their converged networks."""
        found: dict[tuple[Any, ...], list[float]] = {}
        for network in self._networks:
            gaps = found.setdefault(tuple(network[_HYPERPARAMETER + name] for name in self._grid), [])
            if network["converged"]:
                gaps.append(network["gap"])
        return found

    def _levels(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Hyperparameter, value, and the gaps of the converged networks that have it."""
        return [
            (name, value, _spread([n["gap"] for n in self._converged if n[_HYPERPARAMETER + name] == value]))
            for name, values in self._grid.items()
            for value in values
        ]

    def _packed(self) -> list[tuple[str, str]]:
        pack = self.suite_evidence.pack
        return [
            ("evidence pack", pack.version),
            ("pack sha256", pack.hash),
            ("data", str(self.suite_evidence.suite.data.dataset)),
            ("data sha256", self.suite_evidence.data_sha256),
            ("rebuild and compare", f"genbench pack verify --suite {self.suite_evidence.suite.name}"),
        ]


def _spread(gaps: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(gaps),
        "mean": fmean(gaps) if gaps else None,
        "sd": stdev(gaps) if len(gaps) > 1 else None,
    }


def _reasons(record: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Why networks have no reading: how many, status and reason, the most frequent first."""
    missing = Counter((r["status"], r["reason"]) for r in record["readings"] if r["value"] is None)
    ordered = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    return [
        (count, status, reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…")
        for (status, reason), count in ordered
    ]
