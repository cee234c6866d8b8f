"""A population of eight combos and four seeds, with numbers of its own."""

from __future__ import annotations

import itertools

import numpy as np

from genbench.scoring import (
    NetworkTable,
)


def small_table() -> NetworkTable:
    generator = np.random.default_rng(5)
    grid = np.array(list(itertools.product(range(2), range(2), range(2), range(4))))
    gap = 0.1 * grid[:, 0] + generator.uniform(0, 0.2, len(grid))
    return NetworkTable(
        hyperparameters=("lr", "depth", "width"),
        codes=grid[:, :3],
        levels=((0, 1), (0, 1), (0, 1)),
        seeds=grid[:, 3],
        targets={"gap": gap},
        measures=("a",),
        readings=np.exp(3 * gap + generator.normal(size=len(grid)))[:, None],
        test_error=np.round(gap, 2),
        test_size=np.full(len(grid), 1000.0),
    )
