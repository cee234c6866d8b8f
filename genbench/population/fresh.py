"""Fresh networks of a population: two values of each setting, on seeds that nobody has published."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from genbench.engine.cells import Setting
from genbench.population.suite import PopulationSuite

__all__ = ["fresh_population"]

_SEEDS = range(2**20, 2**31)
_LEVELS = 2


def fresh_population(suite: PopulationSuite, draw: random.Random, networks: int) -> PopulationSuite:
    """A part of `suite` with about as many `networks`, all of them on seeds of their own."""
    subgrids = (draw.choice(suite.subgrids),) if suite.subgrids else ()
    grid = {axis: values if axis == "seed" else _some(values, draw) for axis, values in suite.grid.items()}
    part = replace(suite, grid={**grid, **({"seed": (0,)} if "seed" in grid else {})}, subgrids=subgrids)
    if "seed" not in grid:
        seed = draw.choice(_SEEDS)
        return replace(
            part, train=structs.replace(suite.train, seed=seed), changes={**suite.changes, "train.seed": seed}
        )
    seeds = tuple(draw.sample(_SEEDS, max(1, networks // part.networks)))
    return replace(part, grid={**grid, "seed": seeds}, changes={**suite.changes, "grid.seed": list(seeds)})


def _some(values: tuple[Setting, ...], draw: random.Random) -> tuple[Setting, ...]:
    chosen = sorted(draw.sample(range(len(values)), min(_LEVELS, len(values))))
    return tuple(values[place] for place in chosen)
