"""How a kind of suite looks: on a terminal, on the page of a run, on the site, in a paper.

What is alike for all kinds is drawn by `genbench.report` and `genbench.leaderboard`, which ask here for the
rest. A kind that overrides only the abstract parts has plain but complete pages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from genbench.display.names import reading_note
from genbench.display.scatter import Point, ScatterPanel, reading_scatter
from genbench.display.tables import Table
from genbench.suites.result import Judged, MeasureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genbench.suites.evidence import Evidence

__all__ = ["NetworkColumn", "NetworksPage", "Nothing", "PageReading", "Pages", "ReadingsPage", "Section"]


@dataclass(frozen=True)
class NetworkColumn:
    """Something known of every network that stands beside its reading, such as a truth."""

    label: str
    text: Callable[[str], str]
    """Of a network."""
    heading: str = ""
    """What a page says instead of the label."""
    truth: bool = True
    """Whether it is what readings should predict."""


class Nothing(Struct, frozen=True):
    """What a page or document has to say beside what all kinds have, where that is nothing."""


class Section(Struct, frozen=True, kw_only=True):
    """A part of a run's page about the evidence; a kind adds what its fragment shows."""

    id: str
    name: str


class NetworksPage(Struct, frozen=True, kw_only=True):
    """An evidence page that lists networks."""

    packed: list[tuple[str, str]]
    networks: list[str]
    columns: list[NetworkColumn]


class PageReading(Struct, frozen=True, kw_only=True):
    """A row of a measure's page."""

    network: str
    value: str
    status: str
    reason: str


class ReadingsPage(Struct, frozen=True, kw_only=True):
    """A measure's page that lists readings."""

    readings: list[PageReading]
    columns: list[NetworkColumn]
    figure: Struct | None = None
    """What `assets/figures.js` draws; every measure's page has one or None."""


class Pages(ABC):
    """The looks of one suite's evidence and of the measures judged by it."""

    judged_by: str
    """"…, judged by": what the truth is."""
    score_title: str
    """Title of the table of scores."""
    about_scores: str
    """How the headline came about and what its interval is over, in a sentence or two."""
    scatter_caption: ClassVar[str] = "Lines join pairs that the measure orders wrongly."
    papers: ClassVar[tuple[str, ...]] = ()
    """Numbers of the papers that its scores come from."""

    templates: ClassVar[str] = ""
    """Package that has a folder `templates` of the kind's own; they are found below the kind's name."""
    run_measure_template: ClassVar[str] = ""
    """Fragment of a run's page about one measure: where it fails."""
    run_evidence_template: ClassVar[str] = ""
    """Fragment of a run's page about the evidence."""
    board_template: ClassVar[str] = "board.html.j2"
    evidence_template: ClassVar[str] = "evidence.html.j2"
    measure_template: ClassVar[str] = "measure.html.j2"
    """Pages of the site; a kind's own extend these."""

    def __init__(self, evidence: Evidence, judged: Judged) -> None:
        self.evidence = evidence
        self.judged = judged

    # -- networks ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def network_columns(self) -> list[NetworkColumn]:
        """What stands beside every reading, the truths among them."""

    @abstractmethod
    def truth(self, network: str) -> float | None:
        """The one that a plain scatter plot shows; None where it does not count."""

    def note(self, network: str) -> str:
        """What a reader must know of a network, such as that it is not scored."""
        return ""

    def panels(self, result: MeasureResult) -> list[ScatterPanel]:
        """Readings against truths."""
        truths = {network: self.truth(network) for network in result.values}
        points = [
            Point(network, "", value, truth)
            for network, value in result.values.items()
            if (truth := truths[network]) is not None
        ]
        return [ScatterPanel("", self.judged_by, points, [])]

    # -- a run -------------------------------------------------------------------------------------------

    @property
    def summary(self) -> list[str]:
        """Labels of the score columns that a terminal shows, those that fit first."""
        return [column.label for column in self.evidence.columns]

    def failures(self, result: MeasureResult) -> list[Table | str]:
        """On a terminal: where a measure went wrong."""
        return []

    def closing(self, table: Path | None) -> list[Table | str]:
        """On a terminal, after the scores; `table` is where the record table was written."""
        return []

    def warnings(self) -> list[str]:
        """On a terminal: what could not be computed, and why."""
        return [f"no scores of the papers: {self.judged.note}"] if self.judged.note else []

    def document(self, table: Path | None) -> Struct:
        """What `genbench run --json` says beside what all kinds have: fields of the same document."""
        return Nothing()

    def run_measure(self, result: MeasureResult) -> Struct:
        """What the fragment about a measure shows: `m.own` in its template."""
        return Nothing()

    def run_evidence(self) -> Sequence[Section]:
        """Sections of the fragment about the evidence."""
        return []

    def provenance(self) -> list[tuple[str, str]]:
        """Rows about the data, for the page of a run."""
        return []

    # -- the site and the paper kit ----------------------------------------------------------------------

    def site_files(self) -> dict[str, bytes]:
        """What the pages of a suite share; by path below its folder."""
        return {}

    # The fields of these are names in the kind's own templates.

    def board_page(self) -> Struct:
        """What the template of a board shows below the table."""
        return Nothing()

    def evidence_page(self) -> Struct:
        """What the measures are judged against; every such page has a field `packed`."""
        return NetworksPage(
            packed=self.packed(), networks=self.evidence.networks, columns=self.network_columns
        )

    def measure_page(self, result: MeasureResult) -> Struct:
        """How one measure did; every such page has a field `figure`."""
        readings = [
            PageReading(
                network=network,
                value="" if outcome.value is None else f"{outcome.value:.6g}",
                status=str(outcome.status).replace("_", " "),
                reason=reading_note(outcome),
            )
            for network, outcome in result.outcomes.items()
        ]
        return ReadingsPage(readings=readings, columns=self.network_columns)

    def packed(self) -> list[tuple[str, str]]:
        """Where the evidence comes from."""
        pack = self.evidence.pack
        if pack is None:
            return []
        return [
            ("evidence pack", pack.version),
            ("pack sha256", pack.hash),
            ("data sha256", pack.manifest.data_hash),
            ("rebuild and compare", f"genbench pack verify --suite {self.evidence.suite.name}"),
        ]

    def board_files(self) -> Mapping[str, str]:
        """Ending to text of files beside a board: `csv` is the record table."""
        return {}

    def figures(self, result: MeasureResult) -> dict[str, Figure]:
        """Figures of a paper, by file name."""
        panels = self.panels(result)
        if not any(panel.points for panel in panels):
            return {}
        axis = f"{result.name} (higher should mean {result.measure.higher_means})"
        return {f"{result.name}.pdf": reading_scatter(axis, panels)}
