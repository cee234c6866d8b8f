"""Training inputs as a network takes them, prepared when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Inputs"]


class Inputs:
    """The inputs of a training set, on the device of its network; nothing holds all of them prepared.

    `raw` may lie in a mapped file. `prepare` makes what the network takes of a few rows of it: each row by
    itself, so that a batch does not change its rows.
    """

    def __init__(
        self,
        raw: Tensor,
        prepare: Callable[[Tensor], Tensor] | None = None,
        *,
        device: torch.device | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self._raw = raw
        self._prepare = prepare
        self._rows = rows
        self.device = raw.device if device is None else device

    def __len__(self) -> int:
        return len(self._raw if self._rows is None else self._rows)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """The inputs of these rows, prepared, in memory of their own where they had to be."""
        if self._rows is not None:
            rows = self._rows[rows]
        elif isinstance(rows, Tensor):
            rows = rows.to(self._raw.device)
        chosen = self._raw[rows]
        prepared = chosen if self._prepare is None else self._prepare(chosen)
        return prepared.to(self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """All inputs in their order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def chosen(self, rows: Tensor) -> Inputs:
        """These rows alone, in this order; nothing is prepared yet."""
        rows = rows.to(self._raw.device)
        within = rows if self._rows is None else self._rows[rows]
        return Inputs(self._raw, self._prepare, device=self.device, rows=within)

    def to(self, device: torch.device) -> Inputs:
        """The same inputs for a network on `device`."""
        return Inputs(self._raw, self._prepare, device=device, rows=self._rows)

    @cached_property
    def _first(self) -> Tensor:
        return self[:1]

    @property
    def shape(self) -> torch.Size:
        """(m, ...) as the network takes them."""
        return torch.Size((len(self), *self._first.shape[1:]))

    @property
    def ndim(self) -> int:
        """Number of dimensions, that of the examples included."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Of a prepared input."""
        return self._first.dtype
