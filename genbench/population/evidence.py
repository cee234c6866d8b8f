"""The evidence of a population: networks with their settings and gaps, as a record table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import Struct, convert

from genbench.display.tables import Shown
from genbench.engine.cells import Setting
from genbench.errors import UserError
from genbench.keys import canonical_json
from genbench.population.score_record import PopulationRecord
from genbench.scoring.population import SHOWN, Column, PopulationScore, pair_scores, population_scores
from genbench.suites.evidence import Evidence, Facts, PublicNetwork, ScoreColumn
from genbench.suites.result import Judged, MeasureResult

if TYPE_CHECKING:
    from genbench.population.pages import PopulationPages
    from genbench.scoring.all_scores import TableScores
    from genbench.scoring.known_networks import KnownNetworks
    from genbench.scoring.network_table import NetworkTable

__all__ = ["NetworkFacts", "PopulationEvidence", "PublicMember", "network_row"]

_TRAINING = ("train_accuracy", "train_loss", "epochs", "parameters")
_CALIBRATION = "heldout_ece"
_ONE_SEED = "every network has the same seed; the scores need several"


class NetworkFacts(Struct, frozen=True):
    """What is known of a network beside its gaps to shifted images, which suites name; None where nothing is,
    because nobody asked or its training failed."""

    gap: float | None = None
    heldout_ece: float | None = None
    converged: bool = True
    train_accuracy: float | None = None
    train_loss: float | None = None
    epochs: int | None = None
    parameters: int | None = None
    shape: dict[str, Setting] | None = None
    """What decides its tensors."""
    shifted_accuracy: dict[str, float] | None = None
    """By corruption and severity."""
    test_error: float | None = None
    """As the table of a collection gives it."""
    tried: int | None = None
    """Training images of a collection that it was tried on."""
    tried_accuracy: float | None = None

    @property
    def architecture(self) -> str:
        """In words, without what has no weights; "" where only its size is known."""
        shape = self.shape or {}
        return " ".join(f"{name}={shape[name]}" for name in sorted(shape) if name != "dropout")


class PublicMember(PublicNetwork, frozen=True, kw_only=True):
    """A network, its settings and how its training ended."""

    architecture: str | None
    weights: int | None
    settings: Mapping[str, Setting]
    train_accuracy: float | None
    train_loss: float | None
    epochs: int | None
    judged: bool


@dataclass(frozen=True)
class PopulationEvidence(Evidence):
    """One row per network: settings, seed, gaps, how its training ended."""

    settings: Mapping[str, Mapping[str, Setting]]
    """Network to its hyperparameters, seed included; in the suite's order."""
    found: Mapping[str, Facts]
    """Network to what is known of it: training, gaps, accuracies."""

    @property
    def known(self) -> Mapping[str, Facts]:
        """Network to its training and its gaps."""
        return {name: self.found[name] for name in self.settings}

    @cached_property
    def facts(self) -> Mapping[str, NetworkFacts]:
        """The same as types."""
        return {name: convert(found, NetworkFacts) for name, found in self.known.items()}

    def truth_of(self, network: str) -> float | None:
        """What measures are judged by."""
        found: float | None = getattr(self.facts[network], self.truth)
        return found

    @cached_property
    def rows(self) -> dict[str, dict[str, Shown]]:
        """Network to its row of the record table, without readings; in the suite's order."""
        return {
            name: network_row(point, {**self.found[name], **self._severities(self.facts[name])})
            for name, point in self.settings.items()
            if "gap" in self.found[name]
        }

    @property
    def truth(self) -> str:
        """Of the columns of a row, the one that measures are judged by."""
        return _CALIBRATION if self.suite.content()["data"].get("truth") == "ece" else "gap"

    def _severities(self, facts: NetworkFacts) -> dict[str, float]:
        """gap_ood_severityS: training accuracy − mean accuracy over the corruptions of severity S."""
        if not self.suite.content()["data"].get("by_severity"):
            return {}
        accuracies: dict[str, list[float]] = {}
        assert facts.shifted_accuracy is not None
        assert facts.train_accuracy is not None
        for name, accuracy in facts.shifted_accuracy.items():
            accuracies.setdefault(name.rpartition(".")[2], []).append(accuracy)
        return {
            f"gap_ood_severity{severity}": facts.train_accuracy - fmean(values)
            for severity, values in sorted(accuracies.items())
        }

    @property
    def several_seeds(self) -> bool:
        """Whether a combination of hyperparameters was trained more than once, which the scores need."""
        return len({point.get("seed") for point in self.settings.values()}) > 1

    @property
    def columns(self) -> list[ScoreColumn]:
        """The scores of the papers."""

        def shown(column: Column) -> Callable[[PopulationScore], float | None]:
            return lambda score: found.value if (found := score.shown(column)) else None

        chosen = SHOWN if self.several_seeds else ()
        return [ScoreColumn(column.label, column.about, shown(column)) for column in chosen]

    @property
    def counts(self) -> list[ScoreColumn]:
        """Environments, networks dropped."""
        about = "Pairs of combinations that the held-out images order surely"
        environments = ScoreColumn(
            "environments",
            about,
            lambda score: score.environments,
            heading="environ-ments",
            shown=lambda score: f"{score.environments} of {score.available}",
        )
        dropped = ScoreColumn(
            "dropped", "Networks without a reading", lambda score: score.dropped, heading="drop-ped"
        )
        return [environments, dropped] if self.several_seeds else [dropped]

    @property
    def meaning(self) -> list[str]:
        """Of the sign-error over environments."""
        truth = "gap" if self.truth == "gap" else "calibration error"
        return [
            f"Sign-error: how often a measure orders the {truth}s of two networks wrongly, where one "
            f"hyperparameter differs and the held-out images say surely which {truth} is larger; the mean "
            "over all such pairs of settings (environments).",
            "0 is perfect, ½ a coin, 1 always wrong.",
            "Its 95 % interval is for another draw of combinations and seeds.",
        ]

    def table(self, results: Sequence[MeasureResult]) -> list[dict[str, Shown]]:
        """The record table: settings, gaps and the readings of `results`; empty where there is no value."""
        readings = {f"complexity.{one.name}": one.values for one in results}
        return [
            {**row, **{column: values.get(name) for column, values in readings.items()}}
            for name, row in self.rows.items()
        ]

    def network_table(self, results: Sequence[MeasureResult]) -> NetworkTable:
        """The same as the scores take it."""
        import pandas as pd

        from genbench.scoring.columns import Columns
        from genbench.scoring.table_files import table_from_frame

        frame = pd.DataFrame(self.table(results))
        known = {one.name: one.measure for one in results}
        if self.truth == "gap":
            columns = None
        else:
            others = tuple(name for name in frame.columns if name == "gap" or name.startswith("gap_ood"))
            columns = Columns(gap=self.truth, ood=others)
        return table_from_frame(frame, columns, known_measures=known, source=self.suite.name)

    def judge(self, results: Sequence[MeasureResult]) -> Judged:
        """Every score, from the readings; a measure's are the same whatever stands beside it.

        Without several seeds there are no environments: the sign-error is then that over all pairs.
        """
        valued = [one for one in results if one.values]
        scored, note = self._scored(valued)
        found = {} if scored is None else population_scores(scored)
        if not found and valued:
            found = self._over_pairs(valued)
        return Judged([replace(one, score=found.get(one.name)) for one in results], scored, note)

    def _scored(self, results: Sequence[MeasureResult]) -> tuple[TableScores | None, str]:
        """What `genbench score` says of the table, or why it says nothing.

        Recorded scores are taken over, but for a sign-error that was left out of them.
        """
        import pandas as pd

        from genbench.scoring.all_scores import score_table
        from genbench.scoring.population import scores_frame
        from genbench.scoring.robust import sign_error_environments

        if not self.several_seeds:
            return None, _ONE_SEED
        recorded = {
            one.name: one.recorded.scores for one in results if isinstance(one.recorded, PopulationRecord)
        }
        lacking = [name for name, rows in recorded.items() if not any(row[0] == "sign_error" for row in rows)]
        try:
            networks = self.network_table(results)
            fresh = [name for name in networks.measures if name not in recorded]
            parts = [score_table(networks.select(fresh))] if fresh or not lacking else []
            if lacking:
                parts.append(score_table(networks.select(lacking), ["sign_error"]))
        except UserError as problem:
            return None, str(problem)
        scored = parts[0]
        if recorded:
            frames = [*(part.scores for part in parts), scores_frame(recorded)]
            everything = None if scored.environments is None else sign_error_environments(networks)
            scores = pd.concat(frames, ignore_index=True)
            scored = replace(scored, networks=networks, scores=scores, environments=everything)
        return scored, ""

    def _over_pairs(self, results: Sequence[MeasureResult]) -> dict[str, PopulationScore]:
        """Pairs need neither settings nor seeds: any two networks that are scored."""
        import numpy as np

        from genbench.scoring.network_table import NetworkTable

        rows = {name: row for name, row in self.rows.items() if row.get("converged", True)}
        oriented = [{name: one.direction * value for name, value in one.values.items()} for one in results]
        readings = [[values.get(name, np.nan) for values in oriented] for name in rows]
        networks = NetworkTable(
            hyperparameters=(),
            codes=np.zeros((len(rows), 0), dtype=np.int64),
            levels=(),
            seeds=np.zeros(len(rows), dtype=np.int64),
            targets={self.truth: np.array([row.get(self.truth) for row in rows.values()], dtype=np.float64)},
            measures=tuple(one.name for one in results),
            readings=np.array(readings, dtype=np.float64).reshape(len(rows), len(results)),
        )
        return pair_scores(networks, seed=self.suite.bootstrap_seed)

    def trained_alike(self) -> dict[str, str]:
        """The settings without the seed."""
        return {
            name: canonical_json({key: value for key, value in point.items() if key != "seed"})
            for name, point in self.settings.items()
        }

    def public(self) -> dict[str, PublicMember]:
        """Network to its architecture, weights, settings and training."""
        return {
            name: PublicMember(
                architecture=facts.architecture or None,
                weights=facts.parameters,
                settings=self.settings[name],
                train_accuracy=facts.train_accuracy,
                train_loss=facts.train_loss,
                epochs=facts.epochs,
                judged=name in self.rows and facts.converged,
            )
            for name, facts in self.facts.items()
        }

    def known_networks(self) -> KnownNetworks:
        """Converged networks; the headline is over environments where there are several seeds."""
        import pandas as pd

        from genbench.scoring.table_files import networks_from_frame
        from genbench.scoring.table_networks import table_networks

        rows = {name: row for name, row in self.rows.items() if row.get("converged", True)}
        if len(rows) < 2:
            raise UserError(f"{self.suite.name} has fewer than two networks that converged")
        # Every network has a row, whether or not a measure was read on it.
        frame = pd.DataFrame(list(rows.values()), index=list(rows))
        table = networks_from_frame(frame, source=self.suite.name)
        return table_networks(
            table,
            names=list(rows),
            architectures=[self.facts[name].architecture for name in rows],
            environments=self.several_seeds,
        )

    def pages(self, judged: Judged) -> PopulationPages:
        """Environments, gaps, record tables."""
        from genbench.population.pages import PopulationPages

        return PopulationPages(self, judged)


def network_row(hyperparameters: Mapping[str, Setting], found: Facts) -> dict[str, Shown]:
    """What is known of one network, but for its readings: a row of the record table."""
    point = dict(hyperparameters)
    seed = point.pop("seed", 0)
    known = {name: value for name, value in found.items() if not isinstance(value, (list, Mapping))}
    row: dict[str, Shown] = {f"hp.{name}": value for name, value in point.items()}
    row |= {"seed": seed, "gap": known["gap"]}
    row |= {name: known[name] for name in sorted(known) if name.startswith("gap_ood_")}
    row |= {name: known[name] for name in (_CALIBRATION,) if name in known}
    right = known.get("test_accuracy")
    if isinstance(right, (int, float)):
        row["test_error"] = 1 - right
    return row | {name: known[name] for name in ("test_size", "converged", *_TRAINING) if name in known}
