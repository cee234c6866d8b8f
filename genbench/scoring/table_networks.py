"""A record table as networks that can be asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from genbench.scoring.known_networks import KnownNetworks, numbered
from genbench.scoring.network_table import NetworkTable

__all__ = ["table_networks"]

_ARCHITECTURES = ("architecture", "arch", "model")
"""Hyperparameters that tell architectures of equal size apart."""


def table_networks(
    table: NetworkTable,
    *,
    names: Sequence[str] = (),
    target: str = "",
    architectures: Sequence[object] | None = None,
    environments: bool = True,
) -> KnownNetworks:
    """What a record table knows of its rows.

    Parameters
    ----------
    names : of the rows; numbers unless given.
    architectures : of the rows; unless given, what the hyperparameters `architecture`, `arch` or `model` say.
        Networks of equal architecture must also have equally many weights.
    environments : False for a table without several seeds, in which the headline is over all pairs.
    """
    truth = table.target(target)
    told: Sequence[object] = architectures or [
        tuple(code for name, code in zip(table.hyperparameters, row, strict=True) if name in _ARCHITECTURES)
        for row in table.codes.tolist()
    ]
    architecture = None
    if table.weights is not None and np.isfinite(table.weights).all():
        architecture = numbered(list(zip(told, table.weights.tolist(), strict=True)))
    combo = table.combo if table.hyperparameters else np.arange(len(table))
    return KnownNetworks(
        names=tuple(names or map(str, range(len(table)))),
        truths=truth[None],
        family=np.zeros(len(table), dtype=np.int64),
        cluster=combo if environments else np.arange(len(table)),
        architecture=architecture,
        combo=combo,
        settings={
            table.hyperparameters[place]: [table.levels[place][code] for code in table.codes[:, place]]
            for place in table.varying
        },
        weights=None if architecture is None else table.weights,
        training_loss=table.training_loss,
        training_error=table.training_error,
        table=replace(table, targets={"truth": truth}).select(()) if environments else None,
    )
