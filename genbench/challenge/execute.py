"""Trains fresh networks of a suite, reads a measure on them and on published ones, and lays out the bait."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Unpack

import numpy as np
from msgspec import Meta

from genbench.challenge.canaries import find_leaks
from genbench.engine.cells import Outcome
from genbench.engine.sandbox import NOT_SEALED
from genbench.engine.scheduler import Progress
from genbench.engine.store import Store
from genbench.errors import UserError
from genbench.packs.pack import Pack
from genbench.packs.record_types import Count, RecordPart, Text
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry
from genbench.runs.execute import RunOptions, bring_to_end
from genbench.runs.plan import Plan, make_plan
from genbench.scoring.fresh_networks import FreshScore, judge_fresh
from genbench.scoring.known_networks import numbered
from genbench.suites.evidence import Evidence
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.kind import kind_of
from genbench.suites.suite import Suite

__all__ = ["Challenge", "challenge"]

Share = Annotated[float, Meta(ge=0, le=1)]


class Challenge(RecordPart, frozen=True):
    """What came of a challenge."""

    seed: Count
    """Of all that was drawn: settings, seeds of networks."""
    networks: Count
    """Fresh ones that the measure was judged on."""
    twins: Count
    """Published ones that were trained alike."""
    published: Share
    """Sign-error over all pairs of the twins."""
    fresh: Share
    """The same of the fresh networks."""
    allowed: Share
    """What of it chance explains."""
    p: Share
    suspect: bool
    """Whether the measure does worse on fresh networks than chance explains."""
    canaries: Count
    """Readings that were taken again with other evidence in reach."""
    leaks: Annotated[list[Text], Meta(max_length=20)]
    """What was changed, of the evidence alone, where a reading changed with it."""
    sandbox: Text

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the measure."""
        return not self.suspect and not self.leaks

    def sentences(self) -> list[str]:
        """For a person."""
        verdict = "worse than chance explains" if self.suspect else "no worse than chance explains"
        found = [
            f"On {self.networks} fresh networks its sign-error over all pairs is {self.fresh:.3f}, on "
            f"{self.twins} published ones that were trained alike {self.published:.3f}: {verdict} (up to "
            f"{self.allowed:.3f}, p = {self.p:.2g})."
        ]
        if self.leaks:
            found.append(f"Its readings changed with the evidence alone: {', '.join(self.leaks)}.")
        else:
            found.append(f"{self.canaries} readings beside other evidence did not change.")
        return found


def challenge(
    entry: Entry[Measure],
    suite: str,
    store: Path,
    progress: Progress,
    *,
    seed: int,
    networks: int | None = None,
    **how: Unpack[RunOptions],
) -> Challenge:
    """Challenge a measure on a suite that ships evidence.

    Parameters
    ----------
    store : where networks and readings are kept: a second measure finds the networks of the same seed there.
    networks : about as many fresh ones; what the suite's kind finds right unless given.
    """
    published = shipped_evidence(suite)
    kind = kind_of(published.suite)
    part = kind.fresh(published.suite, random.Random(seed), networks or kind.fresh_networks)
    plan = make_plan(part, [entry])
    plan = replace(plan, evidence=plan.evidence.with_all_kept())
    fresh, unseen = bring_to_end(plan, store, progress, partial(_taken, plan, None), **how)
    alike, known = published.trained_alike(), set(fresh.trained_alike().values())
    twins = [name for name in published.networks if alike[name] in known]
    before = _plan_of(published.suite, published.pack, entry, twins)
    _, seen = bring_to_end(before, store, progress, partial(_taken, before, published), **how)
    score, counts = _judged(entry, published, fresh, seen, unseen, seed)
    canaries, leaks = find_leaks(plan, entry, fresh, unseen, store, progress, seed=seed, **how)
    sandboxes = {outcome.cost.sandbox for outcome in (*seen.values(), *unseen.values())}
    return Challenge(
        seed=seed,
        networks=counts[1],
        twins=counts[0],
        published=score.published,
        fresh=score.fresh,
        allowed=score.allowed,
        p=score.p,
        suspect=score.suspect,
        canaries=canaries,
        leaks=leaks,
        sandbox=NOT_SEALED if NOT_SEALED in sandboxes else sandboxes.pop(),
    )


def _plan_of(suite: Suite, pack: Pack | None, entry: Entry[Measure], networks: list[str]) -> Plan:
    """One measure on some networks of a pack."""
    plan = make_plan(suite, [entry], pack=pack)
    wanted = set(networks)
    return replace(
        plan, readings={place: cell for place, cell in plan.readings.items() if place[1] in wanted}
    )


Taken = tuple[Evidence, dict[str, Outcome]]
"""What is known of networks, and network to reading."""


def _taken(plan: Plan, known: Evidence | None, store: Store, outcomes: Mapping[str, Outcome]) -> Taken:
    evidence = known or kind_of(plan.suite).evidence(plan.evidence, plan.suite, store, outcomes)
    return evidence, {network: outcomes[cell.key] for (_, network), cell in plan.readings.items()}


def _judged(
    entry: Entry[Measure],
    published: Evidence,
    fresh: Evidence,
    seen: Mapping[str, Outcome],
    unseen: Mapping[str, Outcome],
    seed: int,
) -> tuple[FreshScore, tuple[int, int]]:
    """The score, and how many networks of both sorts it is over."""
    before, now = published.known_networks(), fresh.known_networks()
    groups_before, groups_now = published.trained_alike(), fresh.trained_alike()
    old = [place for place, name in enumerate(before.names) if name in seen]
    family = {groups_before[before.names[place]]: int(before.family[place]) for place in old}
    new = [place for place, name in enumerate(now.names) if groups_now[name] in family]
    if len(new) < 2:
        raise UserError(f"fewer than two of the fresh networks of {published.suite.name} converged")
    names_before, names_now = [before.names[place] for place in old], [now.names[place] for place in new]
    groups = [*(groups_before[name] for name in names_before), *(groups_now[name] for name in names_now)]
    values = [*(seen[name].value for name in names_before), *(unseen[name].value for name in names_now)]
    direction = 1.0 if entry.item.higher_means == "worse" else -1.0
    score = judge_fresh(
        direction * np.array([np.nan if value is None else value for value in values]),
        np.concatenate([before.truths[:, old], now.truths[:, new]], axis=1),
        numbered([family[group] for group in groups]),
        numbered(groups),
        np.array([False] * len(old) + [True] * len(new)),
        seed=seed % 2**32,
    )
    return score, (len(old), len(new))
