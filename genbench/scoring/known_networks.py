"""What is known of the networks that measures are judged on, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from genbench.scoring.environments import find_environments
from genbench.scoring.network_table import NetworkTable
from genbench.scoring.pairs import pair_weights
from genbench.scoring.robust import MIN_N_EFF
from genbench.scoring.signed_pairs import SignedPairs, pairs_of_groups

__all__ = ["KnownNetworks", "environment_pairs", "numbered"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_Array = TypeVar("_Array", NDArray[np.float64], NDArray[np.int64])


@dataclass(frozen=True, eq=False)
class KnownNetworks:
    """Networks in a fixed order; every array has one entry per network unless it says otherwise."""

    names: tuple[str, ...]
    truths: Floats
    """(slices, networks) what each did on held-out data; higher is worse."""
    family: Integers
    """Number of its family: pairs are taken and readings permuted within one; all 0 in a population."""
    cluster: Integers
    """Number of its backbone or combo: what a bootstrap draws first."""
    architecture: Integers | None = None
    """Number of its backbone, or of its architecture and size; None if unknown."""
    combo: Integers | None = None
    """Networks with the same number have the same settings; None if unknown."""
    settings: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Settings that vary."""
    weights: Floats | None = None
    """Number of its weights."""
    training_loss: Floats | None = None
    training_error: Floats | None = None
    drawn_truths: Floats | None = None
    """(slices, resamples, networks) truths under resampled held-out images."""
    table: NetworkTable | None = None
    """The same networks where the headline is the mean over environments; None where it is over all pairs
    of a family."""

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: NDArray[np.bool_]) -> KnownNetworks:
        """Some of them."""

        def of(values: _Array | None) -> _Array | None:
            return None if values is None else values[rows]

        chosen: list[int] = np.flatnonzero(rows).tolist()
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            truths=self.truths[:, rows],
            family=self.family[rows],
            cluster=self.cluster[rows],
            architecture=of(self.architecture),
            combo=of(self.combo),
            settings={name: [values[i] for i in chosen] for name, values in self.settings.items()},
            weights=of(self.weights),
            training_loss=of(self.training_loss),
            training_error=of(self.training_error),
            drawn_truths=None if self.drawn_truths is None else self.drawn_truths[:, :, rows],
            table=None if self.table is None else self.table.take(rows),
        )

    @cached_property
    def headline(self) -> SignedPairs:
        """The pairs of the headline sign-error: of environments, or all pairs of each family."""
        if self.table is not None:
            return environment_pairs(self.table)
        return pairs_of_groups(self.family, self.family, self.truths)

    @property
    def repeated(self) -> bool:
        """Whether some networks have the same settings: seeds of one combo."""
        return self.combo is not None and len(self) > 0 and int(np.bincount(self.combo).max()) > 1


def numbered(values: Sequence[object]) -> Integers:
    """The same number, from 0, for equal values."""
    place: dict[object, int] = {}
    return np.array([place.setdefault(value, len(place)) for value in values], dtype=np.int64)


def environment_pairs(table: NetworkTable) -> SignedPairs:
    """The pairs behind the mean over environments of the sign-error (001; `scoring.robust`).

    A pair weighs kappa / Σ kappa of its environment / the number of environments, of those with at least 12
    effective pairs. Without a test size kappa is 1.
    """
    found = find_environments(table)
    rows, filled = table.slots
    gap = table.target()
    first = np.broadcast_to(rows[found.first][:, :, None], (len(found), rows.shape[1], rows.shape[1]))
    second = np.broadcast_to(rows[found.second][:, None, :], first.shape)
    kappa = (filled[found.first][:, :, None] & filled[found.second][:, None, :]).astype(np.float64)
    if table.test_size is not None:
        size = np.minimum(table.test_size[first], table.test_size[second])
        kappa *= pair_weights(gap[first] - gap[second], size)
    total, square = kappa.sum(axis=(1, 2)), np.square(kappa).sum(axis=(1, 2))
    n_eff = np.divide(total**2, square, out=np.zeros_like(total), where=square > 0)
    kept = n_eff >= MIN_N_EFF * (1 - 1e-12)
    weight = np.divide(
        kappa, total[:, None, None] * max(1, kept.sum()), out=np.zeros_like(kappa), where=kept[:, None, None]
    )
    counts = weight > 0
    one, other = first[counts], second[counts]
    return SignedPairs(one, other, weight[counts], np.sign(gap[one] - gap[other])[None])
