"""The board of one suite: its records, ranked, with measures that the evidence cannot tell apart tied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench import __version__
from genbench.leaderboard.trust import CONFORMANCE, Trust, read_trust, trust_of
from genbench.records.validate import judged_records, record_files
from genbench.suites.evidence_old import SuiteEvidence, suite_evidence

if TYPE_CHECKING:
    from genbench.scoring.population import PopulationScore
    from genbench.scoring.practical import PracticalScore

__all__ = ["Board", "Row", "board_document", "read_boards"]

_DIGITS = 6
"""Behind the point: what another machine's BLAS leaves alone."""


@dataclass(frozen=True)
class Row:
    """One measure on a board."""

    record: Mapping[str, Any]
    score: PracticalScore | PopulationScore | None
    rank: int | None
    tied: list[str]
    """Other measures that the evidence cannot tell from this one."""
    trust: Trust

    @property
    def name(self) -> str:
        """Of the measure."""
        return str(self.record["measure"]["name"])

    @property
    def baseline(self) -> bool:
        """Whether it is an anchor of the table, which is always shown."""
        built_in = self.record["plugin"]["kind"] == "built-in"
        return bool(built_in and self.record["measure"]["category"] == "baseline")

    @property
    def seconds(self) -> float:
        """Time of all its readings, shared parts included."""
        return float(self.record["cost"]["seconds"] + self.record["cost"]["shared_seconds"])


@dataclass(frozen=True)
class Board:
    """All rows of one suite, best first."""

    evidence: SuiteEvidence
    rows: list[Row]

    @property
    def name(self) -> str:
        """Of the suite."""
        return self.evidence.suite.name


def read_boards(records: Path, trust: Path, only: str = "") -> list[Board]:
    """A board for every suite with records, or for one suite; every record is validated."""
    boards = []
    conformance = read_trust(trust, CONFORMANCE)
    for suite, paths in record_files(records).items():
        if only and suite != only:
            continue
        evidence = suite_evidence(suite)
        judged = judged_records(paths, evidence)
        trusted = partial(trust_of, entries=read_trust(trust, suite), conformance=conformance)
        boards.append(Board(evidence, _rows(judged, trusted)))
    return boards


def _rows(
    judged: Sequence[tuple[Mapping[str, Any], Any]], trust: Callable[[Mapping[str, Any]], Trust]
) -> list[Row]:
    from genbench.scoring.ranking import tied_ranks

    scores = [score for _, score in judged]
    names = [record["measure"]["name"] for record, _ in judged]
    rows = [
        Row(record, score, rank, _tied(i, scores, names), trust(record))
        for i, ((record, score), rank) in enumerate(zip(judged, tied_ranks(scores), strict=True))
    ]
    return sorted(rows, key=lambda row: (row.rank is None, row.rank, row.score and row.score.value, row.name))


def _tied(i: int, scores: Sequence[Any], names: Sequence[str]) -> list[str]:
    own = scores[i]
    if own is None:
        return []
    return [
        name
        for j, (name, other) in enumerate(zip(names, scores, strict=True))
        if j != i and other is not None and own.ties_with(other)
    ]


def board_document(board: Board) -> dict[str, Any]:
    """The board as JSON values: `leaderboards/<suite>.json`."""
    evidence = board.evidence
    return {
        "genbench": __version__,
        "suite": board.name,
        "summary": evidence.suite.summary,
        "evidence": evidence.pack.hash,
        "rows": [_row_document(row, evidence) for row in board.rows],
    }


def _row_document(row: Row, evidence: SuiteEvidence) -> dict[str, Any]:
    record, score = row.record, row.score
    document: dict[str, Any] = {
        "measure": row.name,
        "rank": row.rank,
        "tied_with": row.tied,
        "baseline": row.baseline,
        "category": record["measure"]["category"],
        "summary": record["measure"]["summary"],
        "paper": record["measure"]["paper"],
        "version": record["measure"]["version"],
        "plugin": {key: record["plugin"][key] for key in ("kind", "distribution", "version")},
        "statuses": record["statuses"],
        "cost": record["cost"],
        "trust": row.trust.level,
        "reproduced": row.trust.reproduced,
        "invariance": row.trust.findings,
        "record": record["sha256"],
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
