"""Training inputs as a network takes them, prepared when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from genbench.subject.ahead import one_ahead

__all__ = ["Inputs", "Rows", "gathered"]


class Rows(Protocol):
    """Raw inputs by their row numbers: a tensor, or a file whose rows are read when they are asked for."""

    @property
    def device(self) -> torch.device:
        """Where its rows come out, and where row numbers must be."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Tensor, /) -> Tensor: ...


class Inputs:
    """The inputs of a training set, on the device of its network; nothing holds all of them prepared.

    `raw` may lie in a mapped file. `prepare` makes what the network takes of a few rows of it: each row by
    itself, so that a batch does not change its rows.
    """

    def __init__(
        self,
        raw: Tensor | Rows,
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
        chosen = self._chosen(rows)
        prepared = chosen if self._prepare is None else self._prepare(chosen)
        return prepared.to(self.device)

    def _chosen(self, rows: slice | Tensor) -> Tensor:
        if self._rows is not None:
            rows = self._rows[rows]
        elif isinstance(rows, Tensor):
            rows = rows.to(self._raw.device)
        return self._raw[rows]

    def private(self, rows: slice | Tensor) -> Tensor:
        """The inputs of these rows in memory that nothing else uses, free to change."""
        found = self[rows]
        kept = isinstance(self._raw, Tensor) and (
            found.untyped_storage().data_ptr() == self._raw.untyped_storage().data_ptr()
        )
        # A grey image may have come out as one plane that stands for three.
        return found.clone() if kept or not found.is_contiguous() else found

    def stream(self, parts: Iterable[slice | Tensor], *, private: bool = False) -> Iterator[Tensor]:
        """The inputs of each of `parts`; the next is prepared while one is in use, where that takes long."""
        give = self.private if private else self.__getitem__
        # Handing a batch over costs more than scaling the values of small images.
        return one_ahead(give, parts) if self._resizes else map(give, parts)

    def split(self, size: int) -> Iterator[Tensor]:
        """All inputs in their order, `size` at a time."""
        return self.stream(slice(start, start + size) for start in range(0, len(self), size))

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

    @cached_property
    def _resizes(self) -> bool:
        if self._prepare is None or not len(self):
            return False
        return self._first.shape[-2:] != self._chosen(slice(1)).shape[-2:]

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


def gathered(
    data: tuple[Tensor | Inputs, Tensor] | Iterable[tuple[Tensor, Tensor]],
) -> tuple[Inputs, Tensor]:
    """Inputs and labels of a training set that someone gives; tensors are copied, `Inputs` are not."""
    inputs: Tensor | Inputs
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], (Tensor, Inputs))
        and isinstance(data[1], Tensor)
    ):
        inputs, labels = data[0], data[1].detach().clone()
        inputs = inputs.detach().clone() if isinstance(inputs, Tensor) else inputs
    else:
        batches: list[Any] = list(data)
        if not batches:
            raise ValueError("data is empty; give (inputs, labels) or a non-empty iterable of batches")
        # Joining copies.
        inputs = torch.cat([batch[0].detach() for batch in batches])
        labels = torch.cat([batch[1].detach() for batch in batches])
    if len(inputs) != len(labels):
        raise ValueError(f"data has {len(inputs)} inputs but {len(labels)} labels")
    found = Inputs(inputs) if isinstance(inputs, Tensor) else inputs
    return found, labels.to(found.device).long()
