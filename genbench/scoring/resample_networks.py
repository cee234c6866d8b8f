"""Cluster bootstrap of networks: clusters (backbones, combos) are drawn first, then networks within them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws", "draw_networks"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Draws:
    """The same for all measures."""

    times: NDArray[np.float32]
    """(resamples, networks) how often each was drawn."""
    copies: NDArray[np.float32]
    """(resamples, clusters) how often its cluster was drawn."""

    def of(self, rows: NDArray[np.bool_]) -> Draws:
        """For some of the networks."""
        return Draws(self.times[:, rows], self.copies)


def draw_networks(cluster: Integers, family: Integers, resamples: int, seed: int = 0) -> Draws:
    """As many clusters of each family as there are, with replacement; in every copy of a cluster as many
    networks as it has, with replacement."""
    generator = np.random.default_rng(seed)
    clusters = int(cluster.max(initial=-1)) + 1
    family_of = np.zeros(clusters, dtype=np.int64)
    family_of[cluster] = family
    copies = np.zeros((resamples, clusters), dtype=np.int64)
    for one in np.unique(family_of):
        members = np.flatnonzero(family_of == one)
        even = np.full(len(members), 1 / len(members))
        copies[:, members] = generator.multinomial(len(members), even, size=resamples)
    times = np.zeros((resamples, len(cluster)), dtype=np.float32)
    for number in range(clusters):
        members = np.flatnonzero(cluster == number)
        even = np.full(len(members), 1 / max(1, len(members)))
        times[:, members] = generator.multinomial(copies[:, number] * len(members), even)
    return Draws(times, copies.astype(np.float32))
