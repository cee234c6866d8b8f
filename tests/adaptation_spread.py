"""Does a design of adaptations say something, and not by the training loss? What a suite with such must show.

    python tests/adaptation_spread.py SUITE [--pack DIR]

Of every backbone: how many of its adaptations converged, the spread (standard deviation) of the truth over
them against its Monte-Carlo error, and Kendall's τ between training loss and truth; then its mean over all.
The truth of a network is its mean error over both slices; its Monte-Carlo error the standard deviation over
resampled held-out images.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from genbench.suites import load_suite
from genbench.suites.evidence_packs import find_pack, pack_in
from genbench.suites.kind import kind_of
from genbench.testbed.evidence import TestbedEvidence

__all__ = ["BackboneSpread", "backbone_spreads"]


@dataclass(frozen=True)
class BackboneSpread:
    """The adaptations of one backbone."""

    backbone: str
    networks: int
    converged: int
    losses: tuple[float, float]
    """Smallest and largest training loss."""
    errors: tuple[float, float]
    """Smallest and largest truth."""
    spread: float
    monte_carlo: float
    tau: float
    """Between training loss and truth."""


def backbone_spreads(evidence: TestbedEvidence) -> list[BackboneSpread]:
    """Of every backbone of a suite with adaptations."""
    known = evidence.known_networks()
    assert known.training_loss is not None
    assert known.drawn_truths is not None
    truth = known.truths.mean(axis=0)
    noise = known.drawn_truths.mean(axis=0).std(axis=0)
    members = {one.name: one.backbone for one in evidence.suite.members}
    own = np.array([members[name] for name in known.names])
    found = []
    for backbone in evidence.suite.backbones:
        rows = np.flatnonzero(own == backbone)
        loss, error = known.training_loss[rows], truth[rows]
        found.append(
            BackboneSpread(
                backbone=backbone,
                networks=list(members.values()).count(backbone),
                converged=len(rows),
                losses=(float(loss.min()), float(loss.max())),
                errors=(float(error.min()), float(error.max())),
                spread=float(error.std(ddof=1)),
                monte_carlo=float(np.sqrt(np.mean(np.square(noise[rows])))),
                tau=float(kendalltau(loss, error).statistic),
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--backbones")
    given = parser.parse_args()
    changes = {"testbed.backbones": given.backbones.split(",")} if given.backbones else {}
    suite = load_suite(given.suite, changes=changes)
    pack = find_pack(suite) if given.pack is None else pack_in(given.pack, suite)
    assert pack is not None, "the suite has no pack; build one with `genbench pack build`"
    evidence = kind_of(suite).packed_evidence(suite, pack)
    assert isinstance(evidence, TestbedEvidence)
    spreads = backbone_spreads(evidence)
    for one in spreads:
        print(
            f"{one.backbone}: {one.converged} of {one.networks} converged, "
            f"loss {one.losses[0]:.4f} to {one.losses[1]:.4f}, "
            f"error {one.errors[0]:.3f} to {one.errors[1]:.3f}, "
            f"spread {one.spread:.4f} = {one.spread / one.monte_carlo:.1f} x Monte Carlo, tau {one.tau:+.2f}"
        )
    print(f"mean tau over backbones: {np.mean([one.tau for one in spreads]):+.3f}")


if __name__ == "__main__":
    main()
