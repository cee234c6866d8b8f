"""What authors of measures ask of a subject beside weights and parts: layers, examples, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from genbench.subject.augmentation import augmented
from genbench.subject.plain_values import with_tensors
from genbench.subject.shared import SharedParts

if TYPE_CHECKING:
    from torch import nn

    from genbench.subject.subject import Subject, TrainedNetwork

__all__ = ["ForAuthors"]


class ForAuthors(SharedParts):
    """Methods of `Subject` that no built-in measure needs."""

    _network: TrainedNetwork

    @property
    def model(self) -> nn.Module:
        """The trained network in eval mode: a private copy, free to change."""
        raise NotImplementedError

    @property
    def generator(self) -> torch.Generator:
        """Source of all randomness of this reading."""
        raise NotImplementedError

    def batches(self, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The training set in a fixed order."""
        raise NotImplementedError

    # -- layers ------------------------------------------------------------------------------------------

    def module_names(self) -> tuple[str, ...]:
        """Names of all modules of the network as it is, in the order of `named_modules`; batch norms too."""
        self.used.add("weights")
        return tuple(name for name, _ in self._network.model.named_modules() if name)

    def activations(self, *layers: str, size: int = 256) -> dict[str, Tensor]:
        """Layer to its outputs (n, …) on n = min(size, m) training examples, computed once for all measures.

        Examples are those of `example_labels(size)`, the same for every layer, measure and network. Layers
        are modules of the network as it is, by name (`module_names()`); one that is used several times gives
        the last of its outputs.
        """
        needs = ["weights", "training_data"]
        return {
            name: self._part(needs, "activations", layer=name, size=size)["activations"] for name in layers
        }

    def example_labels(self, size: int = 256) -> Tensor:
        """Labels (n,) of the training examples behind `activations` and `example_gradients`."""
        from genbench.subject.sampling import example_order

        self.used.add("training_data")
        return self._network.labels[example_order(self.m)[:size]].clone()

    # -- examples ----------------------------------------------------------------------------------------

    def augmented_batches(
        self, kind: str = "shift", batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As `batches()`, with every image changed anew: "shift" (turned and moved a little) or "flip".

        Drawn from `subject.generator`, so a measure that uses it says randomness="seeded".
        """
        for images, labels in self.batches(batch_size):
            yield augmented(images, kind, self.generator), labels

    def example_gradients(self, size: int | None = None) -> Iterator[list[Tensor]]:
        """Gradients of the cross-entropy of single examples, some at a time: (examples, *shape) by parameter.

        In the order of `parameters()`, of the first `size` examples of `example_labels`, all by default. As
        many at a time as fit into memory.
        """
        from genbench.subject.example_gradients import example_gradients

        self.used.update({"gradients", "training_data"})
        return example_gradients(self._network, self.m if size is None else size)

    # -- memory of their own -----------------------------------------------------------------------------

    def shared(self, function: Callable[[Subject], Any]) -> Any:
        """What `function(subject)` gives, computed once for all measures of a plugin on this network.

        For measures that are columns of one analysis. `function` is one of the plugin's module; it gives
        numbers, texts, tensors, and lists and dictionaries of them, and its `subject` is a fresh view whose
        seed is the same for all of them.
        """
        value, used = self._parts.own(function, self)  # type: ignore[arg-type]
        self.used.update(used)
        return with_tensors(value, self._network.device)

    def cached(self, key: str, function: Callable[[Subject], Any]) -> Any:
        """What `function(subject)` gave when it was first asked for under `key`; an intermediate of yours.

        A function of a module is computed once for all measures of its plugin, as `shared` does it, wherever
        they are read. Any other function (a lambda, say) is computed once in each process: once in a
        notebook or in `genbench try`, once a reading in a run. Either gives what `shared` may give, is
        called with a fresh view of this subject, and returns a private copy.

            eigenvalues = subject.cached("eigenvalues", lambda subject: ...)
        """
        value, used = self._parts.cached(key, function, self)  # type: ignore[arg-type]
        self.used.update(used)
        return with_tensors(value, self._network.device)
