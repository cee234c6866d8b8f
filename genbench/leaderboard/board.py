"""The board of one suite: its records, ranked, with measures that the evidence cannot tell apart tied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import SystemRandom

import msgspec
from msgspec import UNSET, Struct, UnsetType

from genbench._version import __version__
from genbench.audit.records import read_audits
from genbench.audit.report import MeasureAudit
from genbench.challenge.execute import Challenge
from genbench.leaderboard.calibrations import BoardCalibration, read_calibration
from genbench.leaderboard.trust import Trust, read_challenged, read_checked, read_recomputed, trust_of
from genbench.plugin.registry import BUILT_IN
from genbench.records.record import Record, RecordedCost
from genbench.records.references import recorded_answers
from genbench.records.validate import judged_records, record_files
from genbench.scoring.board_baselines import Baseline
from genbench.scoring.calibrate import Calibration
from genbench.scoring.claims import Claims
from genbench.scoring.verdicts import Answer, MeasureVerdict
from genbench.suites.claims import find_claims
from genbench.suites.evidence import Evidence
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.kind import kind_of
from genbench.suites.pages import Pages
from genbench.suites.result import Headline, Judged, MeasureResult, Score

__all__ = [
    "Board",
    "BoardDocument",
    "Row",
    "RowDocument",
    "audits_beside",
    "board_document",
    "read_boards",
]

_DIGITS = 6
"""Behind the point: what another machine's BLAS leaves alone."""


@dataclass(frozen=True)
class Row:
    """One measure on a board."""

    record: Record
    result: MeasureResult
    rank: int | None
    tied: list[str]
    """Other measures that the evidence cannot tell from this one."""
    trust: Trust
    headline: Headline | None = None
    verdict: MeasureVerdict | None = None
    """Its answers to the four questions; None where the suite does not say what can be asked."""
    same_order: Sequence[str] = ()
    """Other measures that order all networks as it does."""
    audit: MeasureAudit | None = None
    """Of this version of the measure."""

    @property
    def name(self) -> str:
        """Of the measure."""
        return self.record.name

    @property
    def baseline(self) -> bool:
        """Whether it is an anchor of the table, which is always shown."""
        return self.result.baseline

    @property
    def score(self) -> Score | None:
        """What its readings give."""
        found: Score | None = self.result.score
        return found

    @property
    def seconds(self) -> float:
        """Time of all its readings, shared parts included."""
        return self.record.cost.seconds + self.record.cost.shared_seconds


@dataclass(frozen=True)
class Board:
    """All rows of one suite, best first."""

    evidence: Evidence
    rows: Sequence[Row]
    pages: Pages
    claims: Claims | None = None
    calibration: BoardCalibration | None = None
    """Whether the claims can be trusted."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Of its measures."""
        return frozenset(row.name for row in self.rows)

    @property
    def name(self) -> str:
        """Of the suite."""
        return self.evidence.suite.name


def audits_beside(records: Path) -> Path:
    """Where audits lie, of the folder of records."""
    return records.parent / "audits"


def read_boards(
    records: Path,
    trust: Path,
    only: str = "",
    *,
    spot_checks: int | None = None,
    audits: Path | None = None,
    calibrations: Path | None = None,
) -> list[Board]:
    """A board for every suite with records, or for one suite; every record is validated.

    Parameters
    ----------
    spot_checks : as of `judged_records`, of one suite that is drawn each time. Answers to the four questions
        are slow scores too, and those that ship with genbench are taken over for the very readings that they
        were found with.
    """
    audited = {} if audits is None else read_audits(audits)
    conformance = read_checked(trust)
    boards = []
    suites = {suite: paths for suite, paths in record_files(records).items() if only in ("", suite)}
    drawn = SystemRandom().choice([*suites]) if suites else ""
    for suite, paths in suites.items():
        evidence = shipped_evidence(suite)
        found = judged_records(paths, evidence, 0 if spot_checks and suite != drawn else spot_checks)
        trusted, challenged = read_recomputed(trust, suite), read_challenged(trust, suite)
        trusts = [trust_of(record, trusted, conformance, challenged) for record in found.records]
        kept = recorded_answers(found.records, kind_of(evidence.suite))
        results = [replace(one, answers=kept.get(one.name)) for one in found.judged.results]
        again = kept.keys() - found.spared
        judged = replace(found.judged, claims=find_claims(evidence, results, again))
        rows = [_with_audit(row, audited) for row in _rows(found.records, judged, trusts)]
        calibration = None if calibrations is None else read_calibration(calibrations, evidence)
        boards.append(Board(evidence, rows, evidence.pages(judged), judged.claims, calibration))
    return boards


def _rows(records: Sequence[Record], judged: Judged, trusts: Sequence[Trust]) -> list[Row]:
    """Best first: by sign-error, as ranks of measures that cannot be told apart need not follow it."""
    ranks = {result.name: rank for rank, result in judged.ranked}
    claims = judged.claims
    orders = [_order(result) for result in judged.results]
    rows = [
        Row(
            record,
            result,
            ranks[result.name],
            _tied(result, judged.results) if claims is None else list(claims.tied[result.name]),
            trust,
            judged.headline(result),
            None if claims is None else claims.measures[result.name],
            [
                other.name
                for other, its in zip(judged.results, orders, strict=True)
                if other is not result and its == order
            ],
        )
        for record, result, trust, order in zip(records, judged.results, trusts, orders, strict=True)
    ]
    return sorted(rows, key=lambda row: (row.score is None, row.score and row.score.value, row.name))


def _with_audit(row: Row, audits: Mapping[str, MeasureAudit]) -> Row:
    """With the audit of the same measure, as the same people offer it."""
    found = audits.get(row.name)
    if found is None:
        return row
    source, plugin = found.readings.source, row.record.plugin
    own = source.kind == plugin.kind and (
        plugin.kind == BUILT_IN or source.distribution == plugin.distribution
    )
    same = found.readings.measure.version == row.record.measure.version
    return replace(row, audit=found) if own and same else row


def _order(result: MeasureResult) -> tuple[tuple[str, int], ...]:
    """Networks with their ranks among the values, ties alike: equal for measures that say the same."""
    oriented = {name: result.direction * value for name, value in result.values.items()}
    rank = {value: place for place, value in enumerate(sorted(set(oriented.values())))}
    return tuple((name, rank[value]) for name, value in sorted(oriented.items()))


def _tied(own: MeasureResult, results: Sequence[MeasureResult]) -> list[str]:
    if own.score is None:
        return []
    return [
        other.name
        for other in results
        if other is not own and other.score is not None and own.score.ties_with(other.score)
    ]


class PluginDocument(Struct, frozen=True):
    """Who offers a measure."""

    kind: str
    distribution: str
    version: str


class RowDocument(Struct, frozen=True, kw_only=True):
    """A measure on a board as `leaderboards/<suite>.json` has it."""

    measure: str
    rank: int | None
    tied_with: list[str]
    same_order_as: list[str]
    baseline: bool
    category: str
    summary: str
    paper: str
    version: str
    plugin: PluginDocument
    statuses: dict[str, int]
    cost: RecordedCost
    trust: str
    reproduced: list[str]
    invariance: dict[str, str]
    record: str
    """sha256 of the record."""
    sign_error: dict[str, float | None] | None
    """Headline with its intervals, networks dropped, and the numbers that tables of this suite show."""
    verdict: list[str] | UnsetType = UNSET
    """The questions that it passes, where the suite says what can be asked; so with `questions`."""
    questions: dict[str, Answer] | UnsetType = UNSET
    challenge: Challenge | UnsetType = UNSET
    """What came of fresh networks and canaries, where it was challenged."""
    audit: dict[str, str] | UnsetType = UNSET
    """Stressor to verdict, where the measure was audited; so with `survived`."""
    survived: int | UnsetType = UNSET
    """Stressors under which it is robust."""


class BoardDocument(Struct, frozen=True, kw_only=True):
    """`leaderboards/<suite>.json`."""

    genbench: str
    suite: str
    summary: str
    evidence: str | None
    """sha256 of the pack."""
    cannot_ask: dict[str, str] | UnsetType = UNSET
    """Where the suite says what can be asked; so with `baselines`."""
    baselines: dict[str, Baseline] | UnsetType = UNSET
    calibration: Calibration | UnsetType = UNSET
    """Where the suite was calibrated."""
    rows: list[RowDocument]


def board_document(board: Board) -> BoardDocument:
    """The board as a document."""
    evidence, claims = board.evidence, board.claims
    return BoardDocument(
        genbench=__version__,
        suite=board.name,
        summary=evidence.suite.summary,
        evidence=None if evidence.pack is None else evidence.pack.hash,
        cannot_ask=UNSET if claims is None else claims.verdict.cannot_ask,
        baselines=UNSET
        if claims is None
        else {name: _rounded_baseline(one) for name, one in claims.baselines.items()},
        calibration=UNSET if board.calibration is None else board.calibration.found,
        rows=[_row_document(row, evidence) for row in board.rows],
    )


def _row_document(row: Row, evidence: Evidence) -> RowDocument:
    record, verdict = row.record, row.verdict
    about, plugin = record.measure, record.plugin
    return RowDocument(
        measure=row.name,
        rank=row.rank,
        tied_with=row.tied,
        same_order_as=list(row.same_order),
        baseline=row.baseline,
        category=about.category,
        summary=about.summary,
        paper=about.paper,
        version=about.version,
        plugin=PluginDocument(plugin.kind, plugin.distribution, plugin.version),
        statuses=record.statuses,
        cost=record.cost,
        trust=row.trust.level,
        reproduced=row.trust.reproduced,
        invariance=row.trust.findings,
        record=record.sha256,
        sign_error=_sign_error(row, evidence),
        verdict=UNSET if verdict is None else verdict.verdict,
        questions=UNSET
        if verdict is None
        else {question: _rounded_answer(answer) for question, answer in verdict.questions.items()},
        challenge=UNSET if row.trust.challenge is None else row.trust.challenge,
        audit=UNSET if row.audit is None else {one.stressor: one.verdict for one in row.audit.verdicts},
        survived=UNSET if row.audit is None else row.audit.survived,
    )


def _sign_error(row: Row, evidence: Evidence) -> dict[str, float | None] | None:
    score, headline = row.score, row.headline
    if score is None or headline is None:
        return None
    return {
        "value": _rounded(headline.value),
        "low": _rounded_claim(headline.low),
        "high": _rounded_claim(headline.high),
        "image_low": _rounded(score.low),
        "image_high": _rounded(score.high),
        "dropped": score.dropped,
        **{column.label: _rounded(column.number(score)) for column in evidence.columns},
    }


def _rounded_baseline(one: Baseline) -> Baseline:
    return msgspec.structs.replace(
        one,
        sign_error=_rounded_claim(one.sign_error),
        low=_rounded_claim(one.low),
        high=_rounded_claim(one.high),
        band=None if one.band is None else list(map(_rounded_claim, one.band)),
    )


def _rounded_answer(answer: Answer) -> Answer:
    """As a board publishes it."""
    return Answer(*(None if number is None else _rounded_claim(number) for number in vars(answer).values()))


def _rounded_claim(value: float) -> float:
    """To four digits, of sign-errors, intervals and p: sums depend on how many threads ran."""
    return float(f"{value:.4g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
