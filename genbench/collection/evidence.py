"""The evidence of a collection: what its table says of every network, judged as a population is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from genbench.collection.network_rows import Truth
from genbench.display.tables import Shown
from genbench.population.evidence import PopulationEvidence, network_row
from genbench.suites.result import Judged, MeasureResult

if TYPE_CHECKING:
    from genbench.collection.pages import CollectionPages
    from genbench.collection.suite import CollectionSuite

__all__ = ["CollectionEvidence"]

_NO_REPEATS = (
    "they need networks that differ in their seed alone, and others that differ in a column hp.…; the "
    "sign-error is over all pairs"
)


@dataclass(frozen=True)
class CollectionEvidence(PopulationEvidence):
    """A population whose truths someone else found out."""

    suite: CollectionSuite

    @cached_property
    def rows(self) -> dict[str, dict[str, Shown]]:
        """Network to its row of the record table, its name included; the error as the table gave it."""
        rows: dict[str, dict[str, Shown]] = {}
        for name, point in self.settings.items():
            rows[name] = {"network": name, **network_row(point, self.found[name])}
            if (error := self.facts[name].test_error) is not None:
                rows[name]["test_error"] = error
        return rows

    @cached_property
    def several_seeds(self) -> bool:
        """Whether some networks differ in their seed alone, and others in more: the scores need both."""
        combos = Counter(
            str(sorted((name, value) for name, value in point.items() if name != "seed"))
            for point in self.settings.values()
        )
        return len(combos) > 1 and max(combos.values()) > 1

    @property
    def meaning(self) -> list[str]:
        """Of the sign-error, over environments or over all pairs."""
        what = "held-out errors" if self.suite.truth is Truth.ERROR else "gaps"
        over = (
            "where one hyperparameter differs; the mean over all such pairs of settings (environments)"
            if self.several_seeds
            else "over all pairs"
        )
        return [
            f"Sign-error: how often a measure orders the {what} of two networks wrongly, {over}.",
            "0 is perfect, ½ a coin, 1 always wrong.",
        ]

    def judge(self, results: Sequence[MeasureResult]) -> Judged:
        """As a population; why there are no scores of the papers is said in the terms of a table."""
        judged = super().judge(results)
        return judged if self.several_seeds else replace(judged, note=_NO_REPEATS)

    def pages(self, judged: Judged) -> CollectionPages:
        """As a population's, with the truth by its name."""
        from genbench.collection.pages import CollectionPages

        return CollectionPages(self, judged)
