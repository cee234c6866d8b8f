"""The trade-off point of a cube of the paper's size: seconds, and against solving every box with GEKKO.

The authors' script takes 8 to 11 s a cube on such a machine; that is written here for comparison and is not
measured. The ratio is: the same solver in the same run on all 280 boxes of the same cube, none sampled.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from genbench.testbed import tradeoff
from genbench.testbed.cube import read_cube
from genbench.testbed.tradeoff import SCALES, trade_off

CSV = Path(__file__).parent.parent / "tests" / "golden" / "scoring" / "cube.csv"

# GEKKO 1.3.3 under numpy 2; nothing a user sees.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SECONDS = 2.0
RATIO = 5.0


@pytest.mark.parametrize("scales", SCALES)
def test_a_cube_takes_at_most_two_seconds(benchmark: BenchmarkFixture, scales: str) -> None:
    cube = read_cube(CSV)
    trade_off(cube, scales)  # imports of GEKKO and SciPy
    benchmark.pedantic(trade_off, args=(cube, scales), rounds=5)
    assert benchmark.stats.stats.median <= SECONDS


def test_choosing_boxes_beats_solving_them_all() -> None:
    cube = read_cube(CSV)
    trade_off(cube)
    start = time.perf_counter()
    chosen = trade_off(cube)
    ours = time.perf_counter() - start

    objective = tradeoff._make_objective(cube, "normalised", (1, 1, 1))
    boxes = itertools.product(*(range(n - 1) for n in objective.table.shape))
    start = time.perf_counter()
    points, failure = tradeoff._solve_with_gekko(objective, [np.array(box) + 0.5 for box in boxes])
    every_box = time.perf_counter() - start

    print(f"\n{len(points)} boxes {every_box:.2f} s, chosen ones {ours:.2f} s, ratio {every_box / ours:.1f}")
    assert (len(points), failure) == (280, "")
    assert chosen.objective <= min(map(objective.at, points)) + 1e-6
    assert every_box >= RATIO * ours
