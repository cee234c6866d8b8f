"""The networks of a population at a glance: grid, gaps by setting, shifted images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from genbench.display.names import reading_note
from genbench.population.effects import setting_effects
from genbench.suites.result import MeasureResult

if TYPE_CHECKING:
    from genbench.population.evidence import PopulationEvidence

__all__ = ["Overview", "reasons"]

_MOST_REASONS = 3
_LONGEST_REASON = 200
_SHIFT = "gap_ood_"
_HYPERPARAMETER = "hp."


class Overview:
    """What the evidence page of a population shows."""

    def __init__(self, evidence: PopulationEvidence) -> None:
        self._evidence = evidence
        self._networks = list(evidence.rows.values())

    @cached_property
    def _converged(self) -> list[dict[str, Any]]:
        return [network for network in self._networks if network["converged"]]

    @cached_property
    def grid(self) -> dict[str, list[Any]]:
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

    def runs(self) -> dict[str, Any]:
        """What the pages of all measures draw."""
        networks = self._networks
        return {
            "hyperparameters": {
                name: [network[_HYPERPARAMETER + name] for network in networks] for name in self.grid
            },
            "seed": [network["seed"] for network in networks],
            "gap": [round(network["gap"], 5) for network in networks],
            **self._truth(),
            "converged": [int(network["converged"]) for network in networks],
        }

    def _truth(self) -> dict[str, Any]:
        """What measures are judged by, where it is not the gap."""
        column = self._evidence.truth
        if column == "gap":
            return {}
        values = [network.get(column) for network in self._networks]
        shown = [None if value is None else round(value, 5) for value in values]
        return {"truth": {"name": "calibration error", "values": shown}}

    def content(self) -> dict[str, Any]:
        """The grid, its gaps, shifted images."""
        converged = self._converged
        accuracy = {key: round(value, 4) for key, value in self._shifted_accuracy().items()}
        severities = list(dict.fromkeys(key.rpartition(".")[2] for key in accuracy))
        common = self._evidence.suite.content().get("train", {})
        return {
            "converged": len(converged),
            "mean_gap": fmean(network["gap"] for network in converged),
            "test_sizes": sorted({network["test_size"] for network in self._networks}),
            "grid": self.grid,
            "seeds": len({network["seed"] for network in self._networks}),
            "common": {name: value for name, value in common.items() if name not in self.grid},
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
            "effects": setting_effects(self._combinations(), list(self.grid)),
        }

    def _shifted_accuracy(self) -> dict[str, float]:
        """ "corruption.severity" to the mean accuracy of the converged networks."""
        kept = [
            found["shifted_accuracy"]
            for found in self._evidence.found.values()
            if found["converged"] and found.get("shifted_accuracy")
        ]
        return {key: sum(one[key] for one in kept) / len(kept) for key in (kept[0] if kept else {})}

    def _combinations(self) -> dict[tuple[Any, ...], list[float]]:
        """Values of all hyperparameters to the gaps of their converged networks."""
        found: dict[tuple[Any, ...], list[float]] = {}
        for network in self._networks:
            gaps = found.setdefault(tuple(network[_HYPERPARAMETER + name] for name in self.grid), [])
            if network["converged"]:
                gaps.append(network["gap"])
        return found

    def _levels(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Hyperparameter, value, and the gaps of the converged networks that have it."""
        return [
            (name, value, _spread([n["gap"] for n in self._converged if n[_HYPERPARAMETER + name] == value]))
            for name, values in self.grid.items()
            for value in values
        ]


def _spread(gaps: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(gaps),
        "mean": fmean(gaps) if gaps else None,
        "sd": stdev(gaps) if len(gaps) > 1 else None,
    }


def reasons(result: MeasureResult) -> list[tuple[int, str, str]]:
    """Why networks have no reading, or none that differs from 0: how many, status and reason, by number."""
    missing: Counter[tuple[str, str]] = Counter()
    for outcome in result.outcomes.values():
        if outcome.value is None:
            missing[str(outcome.status), outcome.reason] += 1
        elif note := reading_note(outcome):
            # Without the error itself, which differs from one network to the next.
            missing[str(outcome.status), note.partition(":")[0]] += 1
    ordered = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    return [
        (count, status, reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…")
        for (status, reason), count in ordered
    ]
