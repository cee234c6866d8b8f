"""The board of one suite: its records, ranked, with measures that the evidence cannot tell apart tied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from genbench import __version__
from genbench.leaderboard.trust import Trust, read_checked, read_recomputed, trust_of
from genbench.records.record import Record
from genbench.records.validate import judged_records, record_files
from genbench.scoring.ranking import tied_ranks
from genbench.suites.evidence import Evidence
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.pages import Pages
from genbench.suites.result import MeasureResult, Score

__all__ = ["Board", "Row", "board_document", "read_boards"]

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

    @property
    def name(self) -> str:
        """Of the suite."""
        return self.evidence.suite.name


def read_boards(records: Path, trust: Path, only: str = "") -> list[Board]:
    """A board for every suite with records, or for one suite; every record is validated."""
    conformance = read_checked(trust)
    boards = []
    for suite, paths in record_files(records).items():
        if only and suite != only:
            continue
        evidence = shipped_evidence(suite)
        found = judged_records(paths, evidence)
        trusted = read_recomputed(trust, suite)
        trusts = [trust_of(record, trusted, conformance) for record in found.records]
        rows = _rows(found.records, found.judged.results, trusts)
        boards.append(Board(evidence, rows, evidence.pages(found.judged)))
    return boards


def _rows(records: Sequence[Record], results: Sequence[MeasureResult], trusts: Sequence[Trust]) -> list[Row]:
    ranks = tied_ranks([result.score for result in results])
    rows = [
        Row(record, result, rank, _tied(result, results), trust)
        for record, result, rank, trust in zip(records, results, ranks, trusts, strict=True)
    ]
    return sorted(rows, key=lambda row: (row.rank is None, row.rank, row.score and row.score.value, row.name))


def _tied(own: MeasureResult, results: Sequence[MeasureResult]) -> list[str]:
    if own.score is None:
        return []
    return [
        other.name
        for other in results
        if other is not own and other.score is not None and own.score.ties_with(other.score)
    ]


def board_document(board: Board) -> dict[str, Any]:
    """The board as JSON values: `leaderboards/<suite>.json`."""
    evidence = board.evidence
    return {
        "genbench": __version__,
        "suite": board.name,
        "summary": evidence.suite.summary,
        "evidence": None if evidence.pack is None else evidence.pack.hash,
        "rows": [_row_document(row, evidence) for row in board.rows],
    }


def _row_document(row: Row, evidence: Evidence) -> dict[str, Any]:
    record, score = row.record, row.score
    about, plugin = record.measure, record.plugin
    document: dict[str, Any] = {
        "measure": row.name,
        "rank": row.rank,
        "tied_with": row.tied,
        "baseline": row.baseline,
        "category": about.category,
        "summary": about.summary,
        "paper": about.paper,
        "version": about.version,
        "plugin": {"kind": plugin.kind, "distribution": plugin.distribution, "version": plugin.version},
        "statuses": record.statuses,
        "cost": msgspec.to_builtins(record.cost),
        "trust": row.trust.level,
        "reproduced": row.trust.reproduced,
        "invariance": row.trust.findings,
        "record": record.sha256,
        "sign_error": None,
    }
    if score is not None:
        document["sign_error"] = {
            "value": _rounded(score.value),
            "low": _rounded(score.low),
            "high": _rounded(score.high),
            "dropped": score.dropped,
            **{column.label: _rounded(column.number(score)) for column in evidence.columns},
        }
    return document


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
