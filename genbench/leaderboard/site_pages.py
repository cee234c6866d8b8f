"""What the pages of the site show, as types; a kind's own pages add theirs (`genbench.suites.pages`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from genbench.display.papers import Paper
from genbench.display.question_marks import Mark
from genbench.leaderboard.calibrations import BoardCalibration
from genbench.records.record import About
from genbench.scoring.board_baselines import Baseline
from genbench.suites.evidence import ScoreColumn
from genbench.suites.result import Headline, Score

__all__ = [
    "AuditLine",
    "ComparedMeasure",
    "ComparedRow",
    "Comparison",
    "CostDrawing",
    "CostPoint",
    "InvarianceMark",
    "MatrixRow",
    "MeasurePage",
    "SiteAudit",
    "SiteBoard",
    "SiteRow",
]


class InvarianceMark(Struct, frozen=True, kw_only=True):
    """What the conformance kit found of a measure and one change of a network."""

    letter: str
    name: str
    """Of the change."""
    unchanged: bool
    mark: str
    said: str
    """The mark in words."""


class AuditLine(Struct, frozen=True, kw_only=True):
    """What one stressor says of a measure."""

    title: str
    verdict: str
    style: str
    """Class of the verdict in the style sheet."""
    number: str
    why: str
    networks: str
    """The two that gave it: what they have in common, and what not."""
    notes: list[str]


class SiteAudit(Struct, frozen=True, kw_only=True):
    """Is a measure fragile?"""

    survived: int
    lines: list[AuditLine]
    card: list[tuple[str, str]]
    """Two networks that compute one function, to what the measure says of the second."""


class SiteRow(Struct, frozen=True, kw_only=True):
    """A measure on a board."""

    name: str
    rank: int | None
    tied: list[str]
    baseline: bool
    category: str
    summary: str
    plugin: str
    """Who offers it; "" if it is built in."""
    score: Score | None
    headline: Headline | None
    marks: list[Mark]
    passed: int
    """Questions."""
    same_order: Sequence[str]
    numbers: dict[str, float | None]
    """By column."""
    statuses: list[tuple[str, int]]
    """How many readings have which, most first."""
    valued: int
    problem: bool
    """Whether a reading failed."""
    seconds: float
    trust: str
    reproduced: list[str]
    """Networks."""
    challenge: list[str]
    """Sentences, where it was challenged."""
    invariance: list[InvarianceMark]
    audit: SiteAudit | None
    """None where this version was not audited."""


class SiteBoard(Struct, frozen=True, kw_only=True):
    """A board."""

    name: str
    summary: str
    meaning: list[str]
    networks: int
    rows: list[SiteRow]
    columns: list[ScoreColumn]
    categories: list[str]
    invariance: bool
    """Whether there is such a column."""
    audited: bool
    """So with the column of audits."""
    legend: dict[str, str]
    """Heading to what stands below it."""
    band: tuple[float, float] | None
    questions: list[tuple[str, str]]
    baselines: Mapping[str, Baseline]
    calibration: BoardCalibration | None
    downloads: list[str]
    """Endings of the board's files."""


class MatrixRow(Struct, frozen=True, kw_only=True):
    """A measure on the front page, with its row on each board."""

    name: str
    summary: str
    category: str
    baseline: bool
    rows: list[SiteRow | None]
    passed: int
    """Questions, on all boards together."""
    mean: float
    """Of its sign-errors."""


class CostPoint(Struct, frozen=True, kw_only=True):
    """A measure in a drawing."""

    name: str
    x: float
    """Share of the width."""
    y: float
    """Its sign-error."""
    passed: int
    seconds: float
    """A network."""


class CostDrawing(Struct, frozen=True, kw_only=True):
    """Sign-errors against seconds on one board."""

    name: str
    band: tuple[float, float] | None
    ticks: list[tuple[float, str]]
    points: list[CostPoint]


class ComparedRow(Struct, frozen=True, kw_only=True):
    """A measure on one board, on the page that compares; numbers as they are shown."""

    rank: int | None
    value: float | None
    low: float | None
    high: float | None
    marks: list[str]
    seconds: float
    trust: str


class ComparedMeasure(Struct, frozen=True, kw_only=True):
    """A measure on the page that compares."""

    summary: str
    family: str
    suites: list[ComparedRow | None]


class Comparison(Struct, frozen=True, kw_only=True):
    """What `assets/compare.js` knows."""

    suites: list[str]
    measures: dict[str, ComparedMeasure]
    apart: list[dict[str, str]]
    """Of each board: measure to a digit for every one of `measures`, 1 where the two are told apart."""


class MeasurePage(Struct, frozen=True, kw_only=True):
    """What the pages of all measures have in common: names in their templates."""

    about: About
    formula: list[tuple[str, str]]
    paper: Paper | None
    place: str
    provenance: list[tuple[str, str]]
    shares: bool
    """Whether it has something in common with most records of the board, which is not repeated."""
    command: str
    reproduce: str
    elsewhere: list[str]
    """Other boards that it is on."""
    audited_on: str
    """The board whose page has the whole audit: the first that it is on."""
