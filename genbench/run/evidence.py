"""The evidence of a testbed on its own: cubes and trade-off points, without a measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genbench.engine.guard import Limits
from genbench.engine.scheduler import Progress
from genbench.run.judging import read_families
from genbench.run.runs import FamilyEvidence, bring_to_end, make_plan
from genbench.suites import TestbedSuite
from genbench.testbed.plan import TestbedPlan

if TYPE_CHECKING:
    from genbench.packs.pack import Pack

__all__ = ["build_evidence"]


def build_evidence(
    suite: TestbedSuite,
    pack: Pack | None,
    store_path: Path,
    progress: Progress,
    *,
    jobs: int | None = None,
    limits: Limits,
    executor: str = "local",
) -> dict[str, FamilyEvidence]:
    """The cube and the trade-off point of every family; computes only what the store does not have."""
    plan = make_plan(suite, [], pack=pack)
    evidence = plan.evidence
    assert isinstance(evidence, TestbedPlan)
    return bring_to_end(
        plan,
        store_path,
        progress,
        lambda store, outcomes: read_families(evidence, suite, store, outcomes),
        jobs=jobs,
        limits=limits,
        executor=executor,
    )
