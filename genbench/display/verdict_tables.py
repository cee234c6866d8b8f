"""Answers of a board to its four questions, as rows of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench.scoring.questions import QUESTIONS

if TYPE_CHECKING:
    from genbench.scoring.board_baselines import Baseline
    from genbench.scoring.claims import Claims
    from genbench.scoring.verdicts import Answer, BoardVerdict, MeasureVerdict

__all__ = [
    "SHORT_VERDICT_COLUMNS",
    "VERDICT_COLUMNS",
    "baseline_rows",
    "claim_words",
    "passed_words",
    "verdict_rows",
    "verdict_words",
]

VERDICT_COLUMNS = ["rank", "measure", "sign-error", "95 % interval", *QUESTIONS]
"""Of tables of measures and of baselines."""
SHORT_VERDICT_COLUMNS = ["measure", "passes", "sign-error", "95 % interval", "rank"]
"""Where there is no room for an answer to each question."""


def verdict_rows(board: BoardVerdict) -> list[dict[str, str]]:
    """One row per measure, best first: a sign-error per question, with a mark where it is passed."""
    ordered = sorted(board.measures.items(), key=lambda row: (_order(row[1]), row[0]))
    return [
        {
            "rank": "–" if one.rank is None else str(one.rank),
            "measure": name,
            "sign-error": _number(one.questions["chance"].value),
            "95 % interval": _ends(one.questions["chance"].low, one.questions["chance"].high),
            **{question: _mark(one, question) for question in QUESTIONS},
            "passes": passed_words(one),
        }
        for name, one in ordered
    ]


def _order(one: MeasureVerdict) -> float:
    value = one.questions["chance"].value
    return 2.0 if value is None else value


def _mark(one: MeasureVerdict, question: str) -> str:
    answer: Answer = one.questions[question]
    if answer.value is None:
        return "–"
    return f"{'✓' if question in one.verdict else ' '} {answer.value:.3f}"


def baseline_rows(baselines: dict[str, Baseline]) -> list[dict[str, str]]:
    """One row per baseline, best first."""
    rows = []
    for name, one in sorted(baselines.items(), key=lambda row: row[1].sign_error):
        about = one.about
        if one.band is not None:
            about = f"a random number per network; 5 to 95 % of 1,000: {_ends(*one.band)}"
        rows.append(
            {
                "baseline": name,
                "sign-error": _number(one.sign_error),
                "95 % interval": _ends(one.low, one.high),
                "beaten by": f"{len(one.beaten_by)}, surely {len(one.surely_beaten_by)}",
                "what it says": about,
            }
        )
    return rows


def passed_words(one: MeasureVerdict) -> str:
    """The questions that a measure passes, or that it passes none."""
    return " ".join(one.verdict) or "–"


def claim_words(claims: Claims) -> list[str]:
    """What a table of a run's scores needs said below it."""
    words = ["passes: chance, then size, fit and settings, at 5 % after Holm over all measures"]
    if claims.band is not None:
        words.append(f"random numbers score {_ends(*claims.band)} (5 to 95 % of 1,000)")
    settings = claims.baselines.get("baseline_settings")
    if settings is not None:
        words.append(f"the settings alone score {settings.sign_error:.3f} (baseline_settings)")
    if claims.verdict.cannot_ask:
        asked = ", ".join(claims.verdict.cannot_ask)
        words.append(f"this suite cannot ask about {asked}: {next(iter(claims.verdict.cannot_ask.values()))}")
    return words


def verdict_words(board: BoardVerdict, baselines: dict[str, Baseline]) -> list[str]:
    """What a table of verdicts needs said below it."""
    words = [
        "✓ passed at 5 % after Holm over these measures; a question after one that was failed is not passed",
        *(f"{question} cannot be asked: {reason}" for question, reason in board.cannot_ask.items()),
    ]
    settings = baselines.get("baseline_settings")
    if settings is not None:
        sure = [
            f"{name} (surely)" if name in settings.surely_beaten_by else name for name in settings.beaten_by
        ]
        words.append(f"better than the settings alone (baseline_settings): {', '.join(sure) or 'none'}")
    return words


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ends(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:.3f} – {high:.3f}"
