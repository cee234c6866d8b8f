"""The four questions of a board as marks beside a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from genbench.scoring.questions import QUESTIONS

if TYPE_CHECKING:
    from genbench.scoring.claims import Claims
    from genbench.scoring.verdicts import MeasureVerdict

__all__ = ["ASKS", "Mark", "marks_of", "question_marks", "question_titles"]

ASKS = {
    "chance": "does it order networks better than luck?",
    "size": "does it order networks of equal architecture and size?",
    "fit": "does it, beyond training loss and training error?",
    "settings": "does it order networks that differ in nothing but what the settings leave open?",
}


@dataclass(frozen=True)
class Mark:
    """One question about one measure."""

    question: str
    passed: bool
    text: str
    """Whether it is passed, with the sign-error."""
    said: str
    """The same in words."""


def question_titles(claims: Claims) -> list[tuple[str, str]]:
    """Question to what it asks, or why nobody was asked."""
    refused = claims.verdict.cannot_ask
    return [
        (name, f"{ASKS[name]} Cannot be asked here: {refused[name]}" if name in refused else ASKS[name])
        for name in QUESTIONS
    ]


def question_marks(claims: Claims | None, measure: str) -> list[Mark]:
    """Of a measure of a run or a board; empty where nothing can be asked."""
    return [] if claims is None else marks_of(claims.measures[measure])


def marks_of(verdict: MeasureVerdict) -> list[Mark]:
    """In the order in which questions are asked."""
    marks = []
    for name in QUESTIONS:
        answer, passed = verdict.questions[name], name in verdict.verdict
        if answer.value is None or answer.p is None or answer.p_holm is None:
            marks.append(Mark(name, False, "–", f"{name}: not asked"))
            continue
        text = f"{'✓ ' if passed else ''}{answer.value:.3f}"
        outcome = "passed" if passed else "not passed"
        said = f"{name}: {outcome}, sign-error {answer.value:.3f}"
        if answer.low is not None and answer.high is not None:
            said += f" ({answer.low:.3f} – {answer.high:.3f})"
        marks.append(Mark(name, passed, text, f"{said}, p = {answer.p:.2g}, after Holm {answer.p_holm:.2g}"))
    return marks
