"""How a collection looks: as a population does, with the truth called what it is."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from genbench.collection.evidence import CollectionEvidence
from genbench.collection.network_rows import Truth
from genbench.population.evidence import NetworkFacts
from genbench.population.pages import PopulationPages, ScoresDocument
from genbench.suites.result import Judged

__all__ = ["CollectionPages"]

_GAP = "the held-out gap: training minus held-out accuracy"
_JUDGED_BY = {
    Truth.GAP: f"{_GAP}, as the collection's table gives it",
    Truth.FROM_ERROR: f"{_GAP}, from the errors and training accuracies of the collection's table",
    Truth.ERROR: "the held-out error, as the collection's table knows neither gaps nor training accuracies",
}
_FAR = 0.1
"""Between two accuracies: more than the few images on which networks are tried can make it by chance."""


class CollectionDocument(ScoresDocument, frozen=True):
    """And what the truth is."""

    truth: str
    judged_by: str


class CollectionPages(PopulationPages):
    """Of networks that someone trained elsewhere."""

    evidence: CollectionEvidence

    # The population's own fragment, found below this kind's name.
    run_measure_template = "collection/run_measure.html.j2"

    def __init__(self, evidence: CollectionEvidence, judged: Judged) -> None:
        truth = evidence.suite.truth
        if truth is Truth.ERROR:
            self.truth_name, self.truth_axis = "error", "held-out error"
        super().__init__(evidence, judged)
        self.judged_by = _JUDGED_BY[truth]

    def warnings(self) -> list[str]:
        """And networks that do not do on their training images what the table says."""
        said = (_doubt(name, facts) for name, facts in self.evidence.facts.items())
        doubtful = [sentence for sentence in said if sentence]
        if not doubtful:
            return super().warnings()
        more = f", and {len(doubtful) - 1} more networks differ" if len(doubtful) > 1 else ""
        asked = "are images and labels those it was trained on, in the same form?"
        return [*super().warnings(), f"{doubtful[0]}{more}; {asked}"]

    def document(self, table: Path | None) -> CollectionDocument:
        """And what the truth is."""
        scores = structs.asdict(super().document(table))
        return CollectionDocument(**scores, truth=str(self.evidence.suite.truth), judged_by=self.judged_by)

    def provenance(self) -> list[tuple[str, str]]:
        """The user's files."""
        suite = self.evidence.suite
        return [
            ("networks", f"{suite.files.weights}, built by {suite.files.builder}"),
            ("training data", suite.data.function or suite.data.dataset or ""),
            ("table", f"{suite.path.parent / suite.files.table}: the truth is {self.judged_by}"),
        ]


def _doubt(name: str, facts: NetworkFacts) -> str:
    """Why a network may not have been given its own training images in their own form; "" if nothing says so.

    Pixels on another scale, or classes in another order, would make every reading of data a wrong one.
    """
    right, trained, error = facts.tried_accuracy, facts.train_accuracy, facts.test_error
    seen = f"{name} gets {right or 0:.0%} of its first {facts.tried} training images right"
    if right is not None and trained is not None and abs(right - trained) > _FAR:
        return f"{seen}, where its row says {trained:.0%}"
    if right is not None and trained is None and error is not None and right < 1 - error - _FAR:
        return f"{seen}, but by its row {1 - error:.0%} of held-out ones"
    return ""
