"""Hand-made networks whose answers are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.known_networks import KnownNetworks, numbered
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.table_networks import table_networks


def made_population(seeds: int = 6) -> KnownNetworks:
    """3 learning rates × 3 training sizes × 4 widths, `seeds` each; every cause has its own share of the gap.

    gap = size of the training set + learning rate + width + training loss + luck of the seed
    """
    generator = np.random.default_rng(3)
    rate, data, width, seed = (
        grid.reshape(-1)
        for grid in np.meshgrid(np.arange(3), np.arange(3), np.arange(4), np.arange(seeds), indexing="ij")
    )
    loss = np.exp(0.5 * generator.normal(size=len(rate)))
    luck = generator.normal(size=len(rate))
    gap = 0.3 - 0.05 * data - 0.03 * rate - 0.04 * width + 0.06 * np.log(loss) + 0.02 * luck
    table = NetworkTable(
        hyperparameters=("learning_rate", "train_size", "width"),
        codes=np.column_stack([rate, data, width]),
        levels=((0.1, 0.2, 0.3), (64, 128, 256), (8, 16, 32, 64)),
        seeds=seed,
        targets={"gap": gap},
        measures=(),
        readings=np.zeros((len(rate), 0)),
        test_size=np.full(len(rate), 20_000.0),
        training_loss=loss,
        training_error=np.zeros(len(rate)),
        weights=100.0 * 4.0**width,
    )
    return table_networks(table)


def made_testbed(backbones: int = 8, adaptations: int = 8) -> KnownNetworks:
    """Two families; adaptations have settings of their own, and truths follow them, the backbone and luck."""
    generator = np.random.default_rng(4)
    count = 2 * backbones * adaptations
    backbone = np.repeat(np.arange(2 * backbones), adaptations)
    rate = np.concatenate([generator.permutation(adaptations) % 4 for _ in range(2 * backbones)])
    share = np.concatenate([generator.permutation(adaptations) % 2 for _ in range(2 * backbones)])
    size = generator.normal(size=2 * backbones)[backbone]
    luck = generator.normal(size=(2, count))
    truths = 0.3 + 0.05 * size + 0.02 * rate - 0.03 * share + 0.02 * luck
    return KnownNetworks(
        names=tuple(f"b{b}-{i}" for i, b in enumerate(backbone)),
        truths=truths,
        family=np.repeat([0, 1], backbones * adaptations),
        cluster=backbone,
        architecture=backbone,
        combo=np.arange(count),
        settings={"rate": rate.tolist(), "share": share.tolist()},
        weights=np.exp(-size),
        training_loss=np.exp(generator.normal(size=count)),
        training_error=generator.random(count),
        drawn_truths=truths[:, None] + 0.005 * generator.normal(size=(2, 200, count)),
    )


def places(known: KnownNetworks, setting: str) -> NDArray[np.float64]:
    """The level of a setting, as a number."""
    return numbered(sorted(set(known.settings[setting])))[
        [sorted(set(known.settings[setting])).index(v) for v in known.settings[setting]]
    ].astype(np.float64)
