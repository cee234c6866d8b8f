"""A board as a Markdown table for the repository."""

from __future__ import annotations

import re

from genbench.leaderboard.board import Board, Row

__all__ = ["markdown"]

_HEADS = (
    "rank", "measure", "family", "sign-error", "95 %", "robustness", "zero-shot", "readings", "seconds",
    "trust", "what it is",
)  # fmt: skip


def markdown(board: Board) -> str:
    """The table, with a sentence on how to read it."""
    lines = [
        f"# {board.name}",
        "",
        f"{_escaped(board.evidence.suite.summary)}. {len(board.rows)} measures, evidence pack "
        f"{board.evidence.pack.version}.",
        "",
        "Sign-error: the share of pairs of networks that a measure orders against the held-out truth",
        "(0 perfect, ½ a coin, 1 always wrong), with its 95 % interval over resampled held-out images.",
        "Measures that the evidence cannot tell apart share a rank. Baselines are in italics.",
        "Made by `genbench leaderboard build`; do not edit.",
        "",
        "| " + " | ".join(_HEADS) + " |",
        "|" + "|".join(" ---: " if head in _RIGHT else " --- " for head in _HEADS) + "|",
        *(_line(row) for row in board.rows),
    ]
    return "\n".join(lines) + "\n"


_RIGHT = {"rank", "sign-error", "robustness", "zero-shot", "seconds"}


def _line(row: Row) -> str:
    score, about = row.score, row.record["measure"]
    name = f"*{row.name}*" if row.baseline else row.name
    counts = sorted(row.record["statuses"].items(), key=lambda item: (-item[1], item[0]))
    trust = row.trust.level + (f" ({len(row.trust.reproduced)})" if row.trust.reproduced else "")
    cells = [
        "" if row.rank is None else str(row.rank),
        name.replace("_", "\\_"),
        _escaped(about["category"]),
        "" if score is None else f"{score.value:.3f}",
        "" if score is None else f"{score.low:.3f} – {score.high:.3f}",
        "" if score is None else f"{score.slice_value('robustness'):.3f}",
        "" if score is None else f"{score.slice_value('zero_shot'):.3f}",
        ", ".join(f"{count} {status}" for status, count in counts).replace("_", " "),
        f"{row.seconds:.2g}" if row.seconds < 10 else f"{row.seconds:.0f}",
        trust,
        _escaped(about["summary"]),
    ]
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """One line of plain text, whatever it holds: nothing in it is markup to Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@$])", r"\\\1", " ".join(text.split())).replace("\\<", "&lt;")
