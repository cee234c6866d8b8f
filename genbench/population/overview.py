"""The networks of a population at a glance: grid, gaps by setting, shifted images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from genbench.display.names import reading_note
from genbench.display.tables import Shown
from genbench.population.effects import Effect, setting_effects
from genbench.scoring.population import SHOWN
from genbench.suites.fields import Toml
from genbench.suites.result import MeasureResult

if TYPE_CHECKING:
    from genbench.population.evidence import PopulationEvidence

__all__ = ["EvidencePage", "NetworkRuns", "Overview", "Spread", "reasons"]

_MOST_REASONS = 3
_LONGEST_REASON = 200
_SHIFT = "gap_ood_"
_HYPERPARAMETER = "hp."


class OtherTruth(Struct, frozen=True):
    """What measures are judged by, where it is not the gap; None of a network that has none."""

    name: str
    values: list[float | None]


class NetworkRuns(Struct, frozen=True, kw_only=True):
    """Columns of what the pages of all measures draw, a value per network."""

    hyperparameters: dict[str, list[Shown]]
    seed: list[Shown]
    gap: list[float]
    truth: OtherTruth | UnsetType = UNSET
    converged: list[int]
    scores: list[tuple[str, str]]
    """Label and meaning of the scores beside the headline, in the order of a measure's table."""


class Spread(Struct, frozen=True):
    """Of some gaps; None where there are too few."""

    count: int
    mean: float | None
    sd: float | None


class EvidencePage(Struct, frozen=True, kw_only=True):
    """The networks at a glance."""

    converged: int
    mean_gap: float
    test_sizes: list[float]
    grid: dict[str, list[Shown]]
    seeds: int
    common: Toml
    """Settings that all networks share."""
    levels: list[tuple[str, Shown, Spread]]
    """Hyperparameter, value, and the gaps of the converged networks that have it."""
    shifts: list[tuple[str, Spread]]
    shifted: dict[str, list[float]]
    """Shift to gaps."""
    severities: list[str]
    corruptions: dict[str, list[float | None]]
    """Corruption to mean accuracy by severity."""
    combinations: list[tuple[tuple[Shown, ...], Spread]]
    effects: list[Effect]
    packed: list[tuple[str, str]]
    """Where the pack comes from."""


class Overview:
    """What the evidence page of a population shows."""

    def __init__(self, evidence: PopulationEvidence) -> None:
        self._evidence = evidence
        self._networks = list(evidence.rows.values())

    @cached_property
    def _converged(self) -> list[dict[str, Shown]]:
        return [network for network in self._networks if network["converged"]]

    @cached_property
    def grid(self) -> dict[str, list[Shown]]:
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

    def runs(self) -> NetworkRuns:
        """What the pages of all measures draw."""
        networks = self._networks
        return NetworkRuns(
            hyperparameters={
                name: [network[_HYPERPARAMETER + name] for network in networks] for name in self.grid
            },
            seed=[network["seed"] for network in networks],
            gap=[round(_number(network, "gap"), 5) for network in networks],
            truth=self._truth(),
            converged=[int(bool(network["converged"])) for network in networks],
            scores=[(column.label, column.about) for column in SHOWN],
        )

    def _truth(self) -> OtherTruth | UnsetType:
        if self._evidence.truth == "gap":
            return UNSET
        values = map(self._evidence.truth_of, self._evidence.rows)
        shown = [None if value is None else round(value, 5) for value in values]
        return OtherTruth("calibration error", shown)

    def page(self, packed: list[tuple[str, str]]) -> EvidencePage:
        """The grid, its gaps, shifted images."""
        converged = self._converged
        accuracy = {key: round(value, 4) for key, value in self._shifted_accuracy().items()}
        severities = list(dict.fromkeys(key.rpartition(".")[2] for key in accuracy))
        common = self._evidence.suite.content().get("train", {})
        return EvidencePage(
            converged=len(converged),
            mean_gap=fmean(_number(network, "gap") for network in converged),
            test_sizes=sorted({_number(network, "test_size") for network in self._networks}),
            grid=self.grid,
            seeds=len({network["seed"] for network in self._networks}),
            common={name: value for name, value in common.items() if name not in self.grid},
            levels=self._levels(),
            shifts=[
                (name, _spread([_number(network, _SHIFT + name) for network in converged]))
                for name in self._shifts
            ],
            shifted={
                name: [round(_number(network, _SHIFT + name), 4) for network in self._networks]
                for name in self._shifts
            },
            severities=severities,
            corruptions={
                name: [accuracy.get(f"{name}.{severity}") for severity in severities]
                for name in dict.fromkeys(key.rpartition(".")[0] for key in accuracy)
            },
            combinations=[(point, _spread(gaps)) for point, gaps in self._combinations().items()],
            effects=setting_effects(self._combinations(), list(self.grid)),
            packed=packed,
        )

    def _shifted_accuracy(self) -> dict[str, float]:
        """ "corruption.severity" to the mean accuracy of the converged networks."""
        kept = [
            facts.shifted_accuracy
            for facts in self._evidence.facts.values()
            if facts.converged and facts.shifted_accuracy
        ]
        return {key: sum(one[key] for one in kept) / len(kept) for key in (kept[0] if kept else {})}

    def _combinations(self) -> dict[tuple[Shown, ...], list[float]]:
        """Values of all hyperparameters to the gaps of their converged networks."""
        found: dict[tuple[Shown, ...], list[float]] = {}
        for network in self._networks:
            gaps = found.setdefault(tuple(network[_HYPERPARAMETER + name] for name in self.grid), [])
            if network["converged"]:
                gaps.append(_number(network, "gap"))
        return found

    def _levels(self) -> list[tuple[str, Shown, Spread]]:
        found = []
        for name, values in self.grid.items():
            for value in values:
                those = [one for one in self._converged if one[_HYPERPARAMETER + name] == value]
                found.append((name, value, _spread([_number(one, "gap") for one in those])))
        return found


def _number(row: Mapping[str, Shown], column: str) -> float:
    value = row[column]
    assert isinstance(value, (int, float)), column
    return value


def _spread(gaps: Sequence[float]) -> Spread:
    return Spread(len(gaps), fmean(gaps) if gaps else None, stdev(gaps) if len(gaps) > 1 else None)


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
