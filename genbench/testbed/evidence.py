"""The evidence of a testbed: a cube per family, its trade-off point, and the truths in its slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from genbench.scoring.practical import HEADLINE, SLICES, JudgedModel, PracticalScore, PracticalTruth
from genbench.suites.evidence import Evidence, PublicNetwork, ScoreColumn
from genbench.suites.fields import Toml
from genbench.suites.result import Judged, MeasureResult
from genbench.testbed.suite import TestbedSuite
from genbench.testbed.tradeoff_point import TradeOff

if TYPE_CHECKING:
    import xarray as xr

    from genbench.scoring.known_networks import KnownNetworks
    from genbench.testbed.pages import TestbedPages

__all__ = ["FamilyCube", "PublicBackbone", "TestbedEvidence", "Training"]

_DIGITS = 6
"""Of a trade-off point that is solved here: solvers on two machines agree to fewer than a float has."""
_BITS = 40
"""Behind the point, of errors that are ranked together."""


class Training(Struct, frozen=True):
    """How the adaptation of a network ended, as far as known."""

    train_loss: float | None = None
    train_accuracy: float | None = None
    epochs: int | None = None


class PublicBackbone(PublicNetwork, frozen=True):
    """A network, and how its adaptation was set and ended."""

    family: str
    architecture: str
    weights: int
    settings: Toml
    train_loss: float | None
    train_accuracy: float | None
    epochs: int | None
    judged: bool = True


@dataclass(frozen=True)
class FamilyCube:
    """The cube of one family and its trade-off point."""

    cube: xr.Dataset
    trade_off: TradeOff


@dataclass(frozen=True)
class TestbedEvidence(Evidence):
    """Cubes, with the suite's kappa and backbones."""

    __test__ = False  # not a test, whatever pytest makes of its name

    suite: TestbedSuite
    cubes: Mapping[str, xr.Dataset]
    """By family."""
    solved: Mapping[str, TradeOff] | None = None
    """Family to its trade-off point, where cells found it."""
    training: Mapping[str, Training] = field(default_factory=dict)
    """Network to how its adaptation ended."""

    @cached_property
    def trade_offs(self) -> Mapping[str, TradeOff]:
        """Family to its trade-off point."""
        from genbench.testbed.tradeoff import trade_off

        if self.solved is not None:
            return self.solved
        return {family: trade_off(cube).rounded(_DIGITS) for family, cube in self.cubes.items()}

    def families(self) -> Mapping[str, FamilyCube]:
        """Family to its cube and trade-off point."""
        return {name: FamilyCube(cube, self.trade_offs[name]) for name, cube in self.cubes.items()}

    def resolved(self) -> Mapping[tuple[str, str], float]:
        """With the resamples of `genbench run`, so that both say the same."""
        return self.truth.resolved()

    @cached_property
    def truth(self) -> PracticalTruth:
        """The slices with their resamples."""
        from genbench.testbed.truth import practical_truth

        return practical_truth(self.cubes, seed=self.suite.bootstrap_seed)

    @cached_property
    def known(self) -> Mapping[str, JudgedModel]:
        """Backbone to its family, weights and marginals."""
        return self.truth.known()

    @property
    def networks(self) -> list[str]:
        """Backbones, or adaptations of them."""
        return [one.name for one in self.suite.members]

    @property
    def columns(self) -> list[ScoreColumn]:
        """Noise-aware, and both slices."""

        def slice_value(name: str) -> Callable[[PracticalScore], float]:
            return lambda score: score.slice_value(name)

        aware = "Pairs weigh by how surely the truth orders them"
        parts = [
            ScoreColumn("across sizes", "Pairs of different backbones", lambda score: score.across_sizes),
            ScoreColumn("equal size", "Pairs of adaptations of one backbone", lambda score: score.equal_size),
        ]
        return [
            *(parts if self.suite.adaptations else []),
            ScoreColumn("noise-aware", aware, lambda score: score.noise_aware),
            ScoreColumn(
                "robustness",
                "Degraded images, no unseen classes",
                slice_value("robustness"),
                heading="robust-ness",
            ),
            ScoreColumn("zero-shot", "Clean images, more and more unseen classes", slice_value("zero_shot")),
        ]

    @property
    def counts(self) -> list[ScoreColumn]:
        """Pairs, ties, networks dropped."""
        return [
            ScoreColumn("pairs", "Pairs of networks", lambda score: score.pairs),
            ScoreColumn("ties", "Pairs with equal readings; each counts ½", _ties),
            ScoreColumn(
                "dropped", "Networks without a reading", lambda score: score.dropped, heading="drop-ped"
            ),
        ]

    @property
    def meaning(self) -> list[str]:
        """Of the practical sign-error."""
        return [
            "Sign-error: the share of pairs of networks that a measure orders against the held-out truth.",
            "0 is perfect, ½ a coin, 1 always wrong.",
            "Its 95 % interval is for another draw of backbones and of held-out images.",
        ]

    def judge(self, results: Sequence[MeasureResult]) -> Judged:
        """Practical sign-errors."""
        scores = self.truth.scores([_oriented(one) for one in results])
        return Judged([replace(one, score=score) for one, score in zip(results, scores, strict=True)])

    def public(self) -> dict[str, PublicBackbone]:
        """Network to its backbone, weights, and how its adaptation was set and ended."""
        members = {one.name: one for one in self.suite.members}
        found = {}
        for family, names in self.truth.models.items():
            for name in names:
                ended = self.training.get(name, Training())
                found[name] = PublicBackbone(
                    family=family,
                    architecture=members[name].backbone,
                    weights=int(self.truth.weights[name]),
                    settings=self.suite.settings(members[name]),
                    train_loss=ended.train_loss,
                    train_accuracy=ended.train_accuracy,
                    epochs=ended.epochs,
                    judged=name not in self.truth.unconverged,
                )
        return found

    def known_networks(self) -> KnownNetworks:
        """All networks that converged, with the truths of both slices and their resamples."""
        import numpy as np

        from genbench.scoring.grid import on_grid
        from genbench.scoring.known_networks import KnownNetworks, numbered

        truth = self.truth
        members = {one.name: one for one in self.suite.members}
        families = list(truth.models)
        names = [name for members in truth.models.values() for name in members]
        training = [self.training.get(name, Training()) for name in names]
        losses = [one.train_loss for one in training if one.train_loss is not None]
        errors = [1 - one.train_accuracy for one in training if one.train_accuracy is not None]
        known = len(losses) == len(errors) == len(names)
        # Of a backbone that is adapted once, the network is the backbone.
        backbone = numbered([members[name].backbone for name in names])
        everything = KnownNetworks(
            names=tuple(names),
            # Ranked over all families, where networks with equally many mistakes are tied.
            truths=on_grid(
                [
                    np.concatenate([truth.slices[family, part].truth[HEADLINE] for family in families])
                    for part in SLICES
                ],
                _BITS,
            ),
            family=numbered([family for family, members in truth.models.items() for _ in members]),
            cluster=backbone,
            architecture=backbone,
            combo=np.arange(len(names)),
            settings=_varying([self.suite.settings(members[name]) for name in names]),
            weights=np.array([truth.weights[name] for name in names], dtype=np.float64),
            training_loss=np.array(losses) if known else None,
            training_error=np.array(errors) if known else None,
            drawn_truths=np.stack(
                [
                    np.concatenate(
                        [truth.slices[family, part].resampled[HEADLINE] for family in families], axis=1
                    )
                    for part in SLICES
                ]
            ),
        )
        judged = np.array([name not in truth.unconverged for name in names])
        return everything if judged.all() else everything.take(judged)

    def pages(self, judged: Judged) -> TestbedPages:
        """Cubes, marginals, wrong pairs."""
        from genbench.testbed.pages import TestbedPages

        return TestbedPages(self, judged)


def _oriented(result: MeasureResult) -> dict[str, float]:
    """Readings with the sign that makes higher mean worse."""
    return {network: result.direction * value for network, value in result.values.items()}


def _varying(settings: Sequence[Toml]) -> dict[str, list[object]]:
    """Setting to its values, of those that are not the same for all networks.

    The head's learning rate moves with the other one, and says nothing beside it.
    """
    found = {name: [one[name] for one in settings] for name in settings[0] if name != "head_learning_rate"}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _ties(score: PracticalScore) -> int:
    # Readings tie alike in both slices.
    return sum(part.ties for part in score.parts if part.statistic == HEADLINE) // len(SLICES)
