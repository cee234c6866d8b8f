"""A board as a Markdown table for the repository."""

from __future__ import annotations

import re
from collections.abc import Sequence

from genbench.leaderboard.board import Board, Row
from genbench.suites.evidence import ScoreColumn

__all__ = ["markdown"]


def markdown(board: Board) -> str:
    """The table, with a sentence on how to read it."""
    evidence = board.evidence
    columns = evidence.columns
    left = ["measure", "family", "95 %", "readings", "trust", "what it is"]
    heads = ["rank", "measure", "family", "sign-error", "95 %", *(column.label for column in columns)]
    heads += ["readings", "seconds", "trust", "what it is"]
    lines = [
        f"# {board.name}",
        "",
        f"{_escaped(evidence.suite.summary)}. {len(board.rows)} measures, evidence pack "
        f"{evidence.pack.version if evidence.pack else 'none'}.",
        "",
        *evidence.meaning,
        "Measures that the evidence cannot tell apart share a rank. Baselines are in italics.",
        "Made by `genbench leaderboard build`; do not edit.",
        "",
        *(f"- {column.label}: {column.about}" for column in columns),
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join(" --- " if head in left else " ---: " for head in heads) + "|",
        *(_line(row, columns) for row in board.rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row, columns: Sequence[ScoreColumn]) -> str:
    score, about = row.score, row.record.measure
    name = f"*{row.name}*" if row.baseline else row.name
    counts = sorted(row.record.statuses.items(), key=lambda item: (-item[1], item[0]))
    trust = row.trust.level + (f" ({len(row.trust.reproduced)})" if row.trust.reproduced else "")
    numbers = [None if score is None else column.number(score) for column in columns]
    cells = [
        "" if row.rank is None else str(row.rank),
        name.replace("_", "\\_"),
        _escaped(about.category),
        "" if score is None else f"{score.value:.3f}",
        "" if score is None else f"{score.low:.3f} – {score.high:.3f}",
        *("" if number is None else f"{number:.3f}" for number in numbers),
        ", ".join(f"{count} {status}" for status, count in counts).replace("_", " "),
        f"{row.seconds:.2g}" if row.seconds < 10 else f"{row.seconds:.0f}",
        trust,
        _escaped(about.summary),
    ]
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """One line of plain text, whatever it holds: nothing in it is markup to Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@$])", r"\\\1", " ".join(text.split())).replace("\\<", "&lt;")
