"""What came of a measure, in sentences for somebody who does not know the scores."""

from __future__ import annotations

from genbench.engine.cells import Status
from genbench.runs.execute import RunResult
from genbench.scoring.claims import Claims
from genbench.scoring.questions import QUESTIONS
from genbench.suites.result import Headline, MeasureResult

__all__ = ["plain_verdict"]

_BEYOND = {
    "chance": "beyond luck",
    "size": "among networks of equal architecture and size",
    "fit": "beyond what training loss and training error tell",
    "settings": "among networks with the same settings",
}
_COIN = 0.5
_MOST_TIED = 3


def plain_verdict(result: RunResult, measure: MeasureResult) -> list[str]:
    """Sentences: how often it is wrong, whether that is more than luck, its place, what it passes."""
    headline = result.judged.headline(measure)
    if headline is None:
        return [f"{measure.name} has no score: {_why_not(measure)}."]
    claims = result.judged.claims
    said = [_wrong_share(measure.name, headline), _against_the_coin(headline, claims)]
    said.append(_place(result, measure))
    if claims is not None:
        said += [_passes(claims, measure.name), _against_baselines(claims, measure.name, headline)]
    missing = sum(outcome.value is None for outcome in measure.outcomes.values())
    if missing:
        said.append(f"{missing} of {len(measure.outcomes)} networks have no reading and are left out.")
    return [sentence for sentence in said if sentence]


def _why_not(measure: MeasureResult) -> str:
    reasons = [o.reason for o in measure.outcomes.values() if o.status is not Status.OK and o.reason]
    counts = ", ".join(f"{count} {status}" for status, count in measure.statuses)
    return f"{counts}; {reasons[0]}" if reasons else f"{counts} readings are too few"


def _wrong_share(name: str, headline: Headline) -> str:
    return (
        f"{name} orders two networks wrongly in {100 * headline.value:.0f} % of cases "
        f"(sign-error {headline.value:.3f}; 0 is perfect, 0.5 a coin)."
    )


def _against_the_coin(headline: Headline, claims: Claims | None) -> str:
    """What the interval says. It is about other networks, and about this measure alone; a mark is about these
    networks, and corrected for all measures: either may say what the other does not."""
    ends = f"its 95 % interval {headline.low:.3f} – {headline.high:.3f}"
    other, alone = ("For another draw of networks", ", taken alone,") if claims else ("As it stands", "")
    if headline.high < _COIN:
        return f"{other} that{alone} is better than a coin: {ends} lies below 0.5."
    if headline.low > _COIN:
        return f"{other} that{alone} is worse than a coin, so it points the wrong way: {ends} lies above 0.5."
    return f"{other} that cannot be told from a coin: {ends} holds 0.5."


def _place(result: RunResult, measure: MeasureResult) -> str:
    ranked = result.judged.ranked
    rank = next(rank for rank, one in ranked if one.name == measure.name)
    scored = [one for _, one in ranked if one.score is not None]
    if rank is None or len(scored) < 2:
        return ""
    same = [one.name for other, one in ranked if other == rank and one.name != measure.name]
    shared = f", which it shares with {len(same)} others" if len(same) > _MOST_TIED else ""
    if same and not shared:
        shared = f", which it shares with {', '.join(same)}"
    return f"It has rank {rank} of {len(scored)} measures{shared}."


def _passes(claims: Claims, name: str) -> str:
    verdict = claims.measures[name]
    askable = [q for q in QUESTIONS if q not in claims.verdict.cannot_ask]
    if not askable:
        return ""
    passed = [_BEYOND[question] for question in verdict.verdict]
    failed = [question for question in askable if question not in verdict.verdict]
    corrected = (
        f"its readings shuffled among them; at 5 % after correction for all {len(claims.measures)} measures"
    )
    if not passed:
        return f"It is not shown to order these very networks {_BEYOND[failed[0]]} ({corrected})."
    words = f"These very networks it orders {' and '.join(passed)} ({corrected})"
    return f"{words}, but is not shown to do so {_BEYOND[failed[0]]}." if failed else f"{words}."


def _against_baselines(claims: Claims, name: str, headline: Headline) -> str:
    """The best of what is no news, where that is better."""
    better = {
        baseline: one
        for baseline, one in claims.baselines.items()
        if one.sign_error < headline.value and baseline != name and one.band is None
    }
    if not better:
        return ""
    best = min(better, key=lambda baseline: better[baseline].sign_error)
    return f"{best} ({better[best].about.partition(';')[0]}) scores {better[best].sign_error:.3f}."
