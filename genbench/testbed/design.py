"""Draws the settings of a suite's adaptations: a balanced design, made once and written into the suite.

    python -m genbench.testbed.design            prints [[adaptations]] of six runs

Every level of a setting occurs equally often, so that no adaptation is the usual one. Of many such designs
(Latin hypercubes where a setting has as many levels as there are runs) the one is taken in which the settings
have least to do with each other: the largest |correlation| of two settings' levels is smallest, and of those
with the same, the sum of squares. What a setting does to the truth can then be told from what another does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVELS", "balanced_design", "design_toml", "largest_correlation"]

RUNS = 6
SEED = 0
_TRIALS = 20_000

LEVELS: Mapping[str, Sequence[Any]] = {
    "learning_rate_factor": (0.32, 0.5, 0.8, 1.25, 2.0, 3.2),
    "train_share": (0.25, 0.4, 0.55, 0.7, 0.85, 1.0),
    "weight_decay": (0.001, 0.03, 0.3),
    "augmentation": ("none", "shift"),
}
"""Of the second edition of `mini`: learning rates over a decade, a quarter to all of the images."""


def balanced_design(
    levels: Mapping[str, Sequence[Any]], runs: int = RUNS, *, seed: int = SEED, trials: int = _TRIALS
) -> list[dict[str, Any]]:
    """Settings of each run.

    Parameters
    ----------
    levels : setting to its levels in their order; their number must divide that of the runs.
    trials : designs that are drawn, to take the best of.
    """
    for name, own in levels.items():
        if runs % len(own):
            raise ValueError(f"{len(own)} levels of {name} cannot occur equally often in {runs} runs")
    generator = np.random.default_rng(seed)
    columns = [np.repeat(np.arange(len(own)), runs // len(own)) for own in levels.values()]
    # The first setting stays in its order: how runs are numbered is of no account.
    drawn = [np.broadcast_to(columns[0], (trials, runs))]
    drawn += [generator.permuted(np.tile(column, (trials, 1)), axis=1) for column in columns[1:]]
    best = int(np.lexsort(_correlations(drawn)[::-1])[0])
    chosen = [own[best] for own in drawn]
    return [
        {name: own[place[run]] for (name, own), place in zip(levels.items(), chosen, strict=True)}
        for run in range(runs)
    ]


def _correlations(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """(2, designs) largest |correlation| of two settings' levels, and the sum of all squares."""
    scaled = []
    for column in drawn:
        centred = column - column.mean(axis=1, keepdims=True)
        scaled.append(centred / np.linalg.norm(centred, axis=1, keepdims=True))
    pairs = [np.einsum("tr,tr->t", one, other) for one, other in combinations(scaled, 2)]
    if not pairs:
        return np.zeros((2, len(drawn[0])))
    found = np.round(np.abs(pairs), 12)
    return np.stack([found.max(axis=0), np.square(found).sum(axis=0)])


def largest_correlation(design: Sequence[Mapping[str, Any]], levels: Mapping[str, Sequence[Any]]) -> float:
    """The largest |correlation| of the levels of two settings in a design."""
    places = [
        np.array([[list(own).index(run[name]) for run in design]], dtype=np.int64)
        for name, own in levels.items()
    ]
    return float(_correlations(places)[0, 0])


def design_toml(design: Sequence[Mapping[str, Any]]) -> str:
    """As [[adaptations]] of a suite, called a1, a2, ..."""
    lines = []
    for number, run in enumerate(design, start=1):
        lines += ["[[adaptations]]", f'name = "a{number}"']
        lines += [f"{name} = {_text(value)}" for name, value in run.items()]
        lines.append("")
    return "\n".join(lines)


def _text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    found = balanced_design(LEVELS)
    print(f"# python -m genbench.testbed.design: seed {SEED}, largest correlation of two settings "
          f"{largest_correlation(found, LEVELS):.2f}")  # fmt: skip
    print(design_toml(found))
