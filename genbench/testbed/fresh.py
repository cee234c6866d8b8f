"""Fresh networks of a testbed: some of its backbones, adapted anew with another seed."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from genbench.testbed.suite import TestbedSuite

__all__ = ["fresh_testbed"]

_SEEDS = range(2**20, 2**31)


def fresh_testbed(suite: TestbedSuite, draw: random.Random, networks: int) -> TestbedSuite:
    """A part of `suite` with about as many `networks`; of one family first, as pairs are taken there."""
    families = list(suite.families().values())
    draw.shuffle(families)
    order = [name for family in families for name in draw.sample(family, len(family))]
    wanted = set(order[: max(2, networks // max(1, len(suite.adaptations)))])
    backbones = [name for name in suite.backbones if name in wanted]
    seed = draw.choice(_SEEDS)
    return replace(
        suite,
        testbed=structs.replace(suite.testbed, backbones=backbones),
        adapt=structs.replace(suite.adapt, seed=seed),
        changes={**suite.changes, "testbed.backbones": backbones, "adapt.seed": seed},
    )
