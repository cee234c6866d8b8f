"""The four questions of a board: 100 measures on 1,000 networks in seconds, and against a plain loop.

The loop takes one measure and one permutation at a time and visits the pairs in Python, as the definition
reads; it is timed on a few permutations of one measure and scaled up. It must give the same p-values. Time is
the processor time of this process.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

from genbench.scoring.known_networks import KnownNetworks
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.permutations import permutation_p
from genbench.scoring.questions import Question, ask
from genbench.scoring.signed_pairs import SignedPairs
from genbench.scoring.table_networks import table_networks
from genbench.scoring.verdicts import judge

MEASURES = 100
SECONDS = 30.0
RATIO = 1000.0


def board() -> KnownNetworks:
    """5 · 5 · 4 combos of 10 seeds, 20 architectures."""
    generator = np.random.default_rng(0)
    depth, width, rate, seed = (
        grid.reshape(-1)
        for grid in np.meshgrid(np.arange(5), np.arange(4), np.arange(5), np.arange(10), indexing="ij")
    )
    gap = 0.2 + 0.02 * depth - 0.02 * width - 0.02 * rate + 0.02 * generator.normal(size=len(depth))
    table = NetworkTable(
        hyperparameters=("depth", "width", "rate"),
        codes=np.column_stack([depth, width, rate]),
        levels=((1, 2, 3, 4, 5), (8, 16, 32, 64), (1, 2, 3, 4, 5)),
        seeds=seed,
        targets={"gap": gap},
        measures=(),
        readings=np.zeros((len(depth), 0)),
        test_size=np.full(len(depth), 10_000.0),
        training_loss=np.exp(generator.normal(size=len(depth))),
        training_error=0.01 * generator.random(len(depth)),
        weights=100.0 * (1 + depth) * 4.0**width,
    )
    return table_networks(table)


def plain_null(pairs: SignedPairs, c: np.ndarray, permutations: int, seed: int) -> list[float]:
    """Sign-errors of permuted readings, pair by pair."""
    generator = np.random.default_rng(seed)
    listed = list(zip(pairs.first.tolist(), pairs.second.tolist(), pairs.signed.tolist(), strict=True))
    found = []
    for _ in range(permutations):
        drawn = generator.permutation(c).tolist()
        total = 0.0
        for i, j, signed in listed:
            total += signed * ((drawn[i] > drawn[j]) - (drawn[i] < drawn[j]))
        found.append(0.5 * (1 - total))
    return found


def test_a_board_is_judged_in_seconds() -> None:
    known = board()
    generator = np.random.default_rng(1)
    noise = np.geomspace(0.01, 3, MEASURES)
    readings = {
        f"m{k}": known.truths[0] + noise[k] * generator.normal(size=len(known)) for k in range(MEASURES)
    }
    with threadpool_limits(1):
        start = time.process_time()
        judged = judge(known, readings)
        taken = time.process_time() - start
    print(
        f"\n{MEASURES} measures × {len(known)} networks, four questions, 20,000 permutations: {taken:.1f} s"
    )
    assert len(judged.measures) == MEASURES
    assert judged.cannot_ask == {}
    assert taken < SECONDS


def test_permutations_against_a_plain_loop() -> None:
    known = board()
    question = ask(known)["chance"]
    assert isinstance(question, Question)
    generator = np.random.default_rng(2)
    readings = known.truths[0][:, None] + 3 * generator.normal(size=(len(known), MEASURES))
    with threadpool_limits(1):
        start = time.process_time()
        p = permutation_p(question.pairs, readings, question.groups)
        fast = time.process_time() - start
        start = time.process_time()
        null = plain_null(question.pairs, readings[:, 0], 100, 3)
        plain = (time.process_time() - start) * 200 * MEASURES
    observed = question.pairs.sign_errors(readings)[0]
    share = np.mean(np.array(null) <= observed + 1e-9)
    assert abs(share - p[0]) < 4 * np.sqrt(0.25 / len(null))
    print(f"\nthe first question, {len(question.pairs)} pairs: {fast:.2f} s, a loop {plain:,.0f} s")
    assert plain / fast > RATIO
