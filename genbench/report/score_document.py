"""What `genbench score --json` and `genbench judge --json` say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from genbench.display.score_tables import worst_environments
from genbench.display.tables import Shown
from genbench.scoring.all_scores import TableScores
from genbench.scoring.board_baselines import Baseline
from genbench.scoring.network_table import Loss
from genbench.scoring.verdicts import BoardVerdict, VerdictDocument

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["JudgeDocument", "QuestionsDocument", "ScoreDocument", "judge_document", "score_document"]

_WORST = 10
"""Environments of each measure, where nobody says how many."""


class DroppedRows(Struct, frozen=True):
    """Rows without a finite reading."""

    rows: int
    for_all_measures: int
    measures: list[Loss]


class QuestionsDocument(Struct, frozen=True):
    """What may be claimed of the measures of a table."""

    measures: dict[str, VerdictDocument]
    cannot_ask: dict[str, str]
    baselines: Mapping[str, Baseline]


class ScoreDocument(Struct, frozen=True, kw_only=True):
    """A record table, and every score of its measures."""

    table: str
    rows: int
    where: list[str]
    """Conditions that chose the rows."""
    rows_not_chosen: int
    unconverged_left_out: int
    dropped: DroppedRows
    combos: int
    hyperparameters: dict[str, list[object]]
    """To its levels."""
    targets: list[str]
    measures: list[str]
    skipped: Mapping[str, str]
    """Score to why it was not computed."""
    scores: list[dict[str, Shown]]
    """Rows of the tidy table, as are the others; None where a number is missing."""
    worst_environments: list[dict[str, Shown]]
    by_values: list[dict[str, Shown]]
    noise_filter: list[dict[str, Shown]]
    questions: QuestionsDocument | UnsetType = UNSET
    """Where they were asked."""


class JudgeDocument(Struct, frozen=True, kw_only=True):
    """What may be claimed of readings that were computed elsewhere."""

    suite: str
    networks: int
    measures: dict[str, VerdictDocument]
    dropped: dict[str, int]
    """Measure to its networks without a finite reading, where there are any."""
    cannot_ask: dict[str, str]
    baselines: Mapping[str, Baseline]


def score_document(
    scored: TableScores, worst: int, asked: tuple[BoardVerdict, Mapping[str, Baseline]] | None
) -> ScoreDocument:
    """With the `worst` environments of each measure, and the answers where questions were asked."""
    networks = scored.networks
    levels = zip(networks.hyperparameters, networks.levels, strict=True)
    return ScoreDocument(
        table=networks.source,
        rows=len(networks),
        where=list(networks.where),
        rows_not_chosen=networks.not_chosen,
        unconverged_left_out=networks.left_out,
        dropped=DroppedRows(networks.lost_rows, networks.incomplete, list(networks.losses)),
        combos=len(networks.runs),
        hyperparameters={name: list(values) for name, values in levels},
        targets=list(networks.targets),
        measures=list(networks.measures),
        skipped=scored.skipped,
        scores=_rows(scored.scores),
        worst_environments=_rows(worst_environments(scored, worst or _WORST)),
        by_values=_rows(scored.by_values),
        noise_filter=_rows(scored.noise),
        questions=UNSET if asked is None else _questions(*asked),
    )


def _questions(board: BoardVerdict, baselines: Mapping[str, Baseline]) -> QuestionsDocument:
    measures = {name: one.document() for name, one in board.measures.items()}
    return QuestionsDocument(measures, board.cannot_ask, baselines)


def judge_document(
    suite: str, networks: int, board: BoardVerdict, baselines: Mapping[str, Baseline]
) -> JudgeDocument:
    """Of readings on a suite."""
    return JudgeDocument(
        suite=suite,
        networks=networks,
        measures={name: one.document() for name, one in board.measures.items()},
        dropped={name: one.dropped for name, one in board.measures.items() if one.dropped},
        cannot_ask=board.cannot_ask,
        baselines=baselines,
    )


def _rows(frame: pd.DataFrame | None) -> list[dict[str, Shown]]:
    """As JSON knows them: null for a missing number."""
    return [] if frame is None else list(frame.astype(object).where(frame.notna(), None).to_dict("records"))
