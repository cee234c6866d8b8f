"""What measures are judged against: the truths of a suite and the networks they belong to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from genbench.display.tables import Shown
from genbench.errors import UserError
from genbench.packs.pack import Pack
from genbench.suites.claims import find_claims
from genbench.suites.result import Judged, MeasureResult
from genbench.suites.suite import Suite

if TYPE_CHECKING:
    import xarray as xr

    from genbench.scoring.known_networks import KnownNetworks
    from genbench.suites.pages import Pages

__all__ = ["Evidence", "Fact", "Facts", "Family", "PublicNetwork", "ScoreColumn"]

Fact = None | bool | int | float | str | list["Fact"] | Mapping[str, "Fact"]
Facts = Mapping[str, Fact]
"""What is known of a network, as JSON values, where only a suite says what there is to know."""


@dataclass(frozen=True)
class ScoreColumn:
    """A number that tables show beside the headline."""

    label: str
    about: str
    number: Callable[[Any], float | None]
    """Of a score."""
    heading: str = ""
    """What a page says instead of the label, with hyphens where it may break."""
    shown: Callable[[Any], str] | None = None
    """The number as text, where it is more than a number."""

    def text(self, score: Any) -> str:
        """As a table shows it: most are shares, some go to 100, some are counts."""
        if self.shown is not None:
            return self.shown(score)
        value = self.number(score)
        if value is None:
            return "–"
        return str(value) if isinstance(value, int) else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


class PublicNetwork(Struct, frozen=True):
    """What may be told of a network before it is judged, never a held-out truth. A kind has fields
    `architecture`, `weights`, `settings`, `train_loss`, `train_accuracy`, as far as known, and `judged` where
    some networks are not."""


class Family(Protocol):
    """Networks of one family in suites that have cubes."""

    @property
    def cube(self) -> xr.Dataset:
        """Error and kappa over zero-shot share, SSIM and model size."""

    @property
    def trade_off(self) -> Any:
        """Its trade-off point."""


@dataclass(frozen=True)
class Evidence(ABC):
    """A suite, and what its networks did on held-out data."""

    suite: Suite
    pack: Pack | None
    """Where it comes from; None if it was made here."""

    @property
    @abstractmethod
    def known(self) -> Mapping[str, Struct | Facts]:
        """Network to what is known of it: truths, size, training. In the suite's order."""

    @property
    def networks(self) -> list[str]:
        """Their names, in the suite's order."""
        return list(self.known)

    @property
    @abstractmethod
    def columns(self) -> list[ScoreColumn]:
        """What tables show beside the headline."""

    @property
    @abstractmethod
    def counts(self) -> list[ScoreColumn]:
        """What the headline of a measure is made of: pairs, environments, networks dropped."""

    @property
    @abstractmethod
    def meaning(self) -> list[str]:
        """Sentences on what the sign-error of this suite is."""

    @abstractmethod
    def judge(self, results: Sequence[MeasureResult]) -> Judged:
        """The same results with their scores, from the readings alone."""

    def judged(self, results: Sequence[MeasureResult]) -> Judged:
        """The same with what may be claimed of them."""
        found = self.judge(results)
        return replace(found, claims=find_claims(self, found.results))

    @abstractmethod
    def pages(self, judged: Judged) -> Pages:
        """How all this looks."""

    def table(self, results: Sequence[MeasureResult]) -> list[dict[str, Shown]] | None:
        """One row per network for `genbench score`; None where a suite's truths are no such table."""
        return None

    def trained_alike(self) -> Mapping[str, str]:
        """Network to what it shares with others, here or in a fresh part of the suite, that differ from it in
        their seed alone."""
        return {name: name for name in self.networks}

    def public(self) -> Mapping[str, PublicNetwork]:
        """Network to what may be told of it before it is judged."""
        return {name: PublicNetwork() for name in self.networks}

    def known_networks(self) -> KnownNetworks:
        """The networks that measures are judged on, as the questions of a board take them."""
        raise UserError(
            f"{self.suite.name} does not say what its measures can be asked: suites of its kind have "
            "sign-errors alone, which `genbench run` shows"
        )

    def families(self) -> Mapping[str, Family]:
        """Family to its cube and trade-off point, of suites that have such; see `Kind.require_cubes`."""
        return {}

    def resolved(self) -> Mapping[tuple[str, str], float]:
        """Share of pairs of networks, by family and slice, that differ by more than Monte-Carlo noise."""
        return {}
