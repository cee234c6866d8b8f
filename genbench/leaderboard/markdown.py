"""A board as a Markdown table for the repository."""

from __future__ import annotations

import re
from collections.abc import Sequence

from genbench.audit.setups import STRESSORS
from genbench.display.verdict_tables import passed_words
from genbench.leaderboard.board import Board, Row
from genbench.suites.evidence import ScoreColumn

__all__ = ["audit_matrix", "markdown"]

_VERDICTS = {"robust": "robust", "fragile": "**fragile**", "blind": "blind", "not applicable": "–"}


def markdown(board: Board) -> str:
    """The table, with a sentence on how to read it."""
    evidence = board.evidence
    columns = evidence.columns
    left = ["measure", "family", "95 %", "passes", "survives", "readings", "trust", "what it is"]
    passes = [] if board.claims is None else ["passes"]
    audited = any(row.audit is not None for row in board.rows)
    heads = ["rank", "measure", "family", "sign-error", "95 %", *passes, *(one.label for one in columns)]
    heads += ["survives"] if audited else []
    heads += ["readings", "seconds", "trust", "what it is"]
    lines = [
        f"# {board.name}",
        "",
        f"{_escaped(evidence.suite.summary)}. {len(board.rows)} measures, evidence pack "
        f"{evidence.pack.version if evidence.pack else 'none'}.",
        "",
        *evidence.meaning,
        "A rank is one more than the number of measures that are surely better. Baselines are in italics.",
        *_claimed(board),
        *([] if board.calibration is None else [f"Calibration: {board.calibration.sentence}"]),
        *(["Survives: stressors of the audit under which it is robust (audits.md)."] if audited else []),
        "Made by `genbench leaderboard build`; do not edit.",
        "",
        *(f"- {column.label}: {column.about}" for column in columns),
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join(" --- " if head in left else " ---: " for head in heads) + "|",
        *(_line(row, columns, audited=audited) for row in board.rows),
    ]
    return "\n".join(lines) + "\n"


def _claimed(board: Board) -> list[str]:
    """What `passes` means, and what is no news."""
    if board.claims is None:
        return []
    reached = [f"{name} {one.sign_error:.3f}" for name, one in board.claims.baselines.items()]
    refused = [f"{name}, because {why}" for name, why in board.claims.verdict.cannot_ask.items()]
    return [
        "Passes: it says more than chance, size, fit and settings, in this order, at 5 % after Holm.",
        f"What is no news scores: {_escaped(', '.join(reached))}.",
        *([f"This suite cannot ask about {_escaped('; '.join(refused))}."] if refused else []),
    ]


def _line(row: Row, columns: Sequence[ScoreColumn], *, audited: bool) -> str:
    score, headline, about = row.score, row.headline, row.record.measure
    name = f"*{row.name}*" if row.baseline else row.name
    counts = sorted(row.record.statuses.items(), key=lambda item: (-item[1], item[0]))
    trust = row.trust.level + (f" ({len(row.trust.reproduced)})" if row.trust.reproduced else "")
    numbers = [None if score is None else column.number(score) for column in columns]
    cells = [
        "" if row.rank is None else str(row.rank),
        name.replace("_", "\\_"),
        _escaped(about.category),
        "" if headline is None else f"{headline.value:.3f}",
        "" if headline is None else f"{headline.low:.3f} – {headline.high:.3f}",
        *([] if row.verdict is None else [passed_words(row.verdict)]),
        *("" if number is None else f"{number:.3f}" for number in numbers),
        *([_survived(row)] if audited else []),
        ", ".join(f"{count} {status}" for status, count in counts).replace("_", " "),
        f"{row.seconds:.2g}" if row.seconds < 10 else f"{row.seconds:.0f}",
        trust,
        _escaped(about.summary),
    ]
    return "| " + " | ".join(cells) + " |"


def _survived(row: Row) -> str:
    return "–" if row.audit is None else f"{row.audit.survived} of {len(row.audit.verdicts)}"


def audit_matrix(boards: Sequence[Board]) -> str:
    """Measures by stressors, those that survive most first; nothing where none was audited."""
    rows = {row.name: row for board in boards for row in board.rows if row.audit is not None}
    if not rows:
        return ""
    titles = [one.title for one in STRESSORS.values()]
    lines = [
        "# Audits",
        "",
        "Is a measure fragile? Verdicts of `genbench audit`, one per stressor (paper 000); it survives those",
        "under which it is robust. Made by `genbench leaderboard build`; do not edit.",
        "",
        f"| measure | survives | {' | '.join(titles)} |",
        f"| --- | ---: |{' --- |' * len(titles)}",
    ]
    for row in sorted(rows.values(), key=lambda one: (-(one.audit.survived if one.audit else 0), one.name)):
        assert row.audit is not None
        verdicts = {one.stressor: _VERDICTS[one.verdict] for one in row.audit.verdicts}
        name = row.name.replace("_", "\\_")
        cells = " | ".join(verdicts[stressor] for stressor in STRESSORS)
        lines.append(f"| {name} | {_survived(row)} | {cells} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """One line of plain text, whatever it holds: nothing in it is markup to Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@$])", r"\\\1", " ".join(text.split())).replace("\\<", "&lt;")
