"""`Subject`: what a measure is given."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.subject.folding import FoldedNetwork, fold_batch_norm
from genbench.subject.parts import LocalParts, PartSource

__all__ = ["Subject", "TrainedNetwork"]


@dataclass(frozen=True)
class TrainedNetwork:
    """The originals behind all views of one subject. Measures never get hold of them."""

    name: str
    model: nn.Module
    initial_model: nn.Module | None
    inputs: Tensor
    """Training inputs as the network takes them."""
    labels: Tensor
    classes: int
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Tensor] | None = None
    """What was recorded while it trained: "loss", "accuracy", each (epochs,)."""

    @cached_property
    def folded(self) -> FoldedNetwork | NotApplicable:
        """The folded network, or why there is none."""
        return _attempt_folding(self.model)

    @cached_property
    def folded_initial(self) -> FoldedNetwork | NotApplicable | None:
        """The folded initial network, folded with its own statistics."""
        return None if self.initial_model is None else _attempt_folding(self.initial_model)


def _attempt_folding(model: nn.Module) -> FoldedNetwork | NotApplicable:
    try:
        return fold_batch_norm(model)
    except NotApplicable as refusal:
        return refusal


class Subject:
    """One trained network and its training data, for one reading of one measure.

    Everything that can be changed is a private copy: whatever a measure does to it, no other reading
    moves. There is no held-out data here. Expensive parts that many measures need (`logits`, `margins`,
    `spectral_norms`, `sigma`) are computed once for all readings of the network.

    Where a network lacks something (no initial weights, a forward pass that cannot be traced), asking for
    it raises `genbench.NotApplicable`, which a measure simply lets through.
    """

    def __init__(
        self, network: TrainedNetwork, parts: PartSource, *, seed: int = 0, batch_size: int = 256
    ) -> None:
        self._network = network
        self._parts = parts
        self._batch_size = batch_size
        self.seed = seed
        """Seed of this reading: a function of suite, subject, measure and repeat."""
        self.used: set[str] = set()
        """Which of `genbench.contract.NEEDS` were asked for, so that `genbench check` can compare."""

    @classmethod
    def from_module(
        cls,
        model: nn.Module,
        *,
        data: tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]],
        initial: nn.Module | None = None,
        classes: int | None = None,
        name: str = "network",
        trace: Mapping[str, Tensor] | None = None,
        seed: int = 0,
        batch_size: int = 256,
    ) -> Subject:
        """A subject from any torch module.

        Parameters
        ----------
        model : the trained network; it is copied and put into eval mode.
        data : the training set as tensors (inputs, labels), or an iterable of such batches.
        initial : the network as its training started; None makes measures that need it not applicable.
        classes : number of classes; by default the width of the network's output.
        """
        inputs, labels = _gathered(data)
        model = copy.deepcopy(model).eval()
        if classes is None:
            with torch.no_grad():
                classes = int(model(inputs[:1]).shape[-1])
        network = TrainedNetwork(
            name=name,
            model=model,
            initial_model=None if initial is None else copy.deepcopy(initial).eval(),
            inputs=inputs,
            labels=labels,
            classes=classes,
            trace=trace,
        )
        return cls(network, LocalParts(network, seed), seed=seed, batch_size=batch_size)

    def fresh(self, *, seed: int | None = None, batch_size: int | None = None) -> Subject:
        """A new view of the same network: new private copies, the same shared parts."""
        return Subject(
            self._network,
            self._parts,
            seed=self.seed if seed is None else seed,
            batch_size=self._batch_size if batch_size is None else batch_size,
        )

    # -- facts ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the network is called in tables."""
        return self._network.name

    @property
    def m(self) -> int:
        """Number of training examples."""
        return len(self._network.labels)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self._network.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch dimension."""
        return tuple(self._network.inputs.shape[1:])

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """How the network was made, where known."""
        return dict(self._network.hyperparameters)

    @property
    def provides(self) -> frozenset[str]:
        """Which of `genbench.contract.NEEDS` this subject can give."""
        given = {"weights", "training_data", "gradients"}
        if self._network.initial_model is not None:
            given.add("initial_weights")
        if self._network.trace is not None:
            given.add("trace")
        return frozenset(given)

    # -- networks and weights ------------------------------------------------------------------------

    @cached_property
    def model(self) -> nn.Module:
        """The trained network in eval mode: a private copy, free to change."""
        self.used.add("weights")
        return copy.deepcopy(self._network.model)

    @cached_property
    def initial_model(self) -> nn.Module:
        """The network as its training started, in eval mode: a private copy."""
        self.used.add("initial_weights")
        if self._network.initial_model is None:
            raise NotApplicable("the initial weights of this network are not known")
        return copy.deepcopy(self._network.initial_model)

    def folded(self) -> FoldedNetwork:
        """The trained network with its batch norms folded away: a private copy."""
        self.used.add("weights")
        return _copy_or_raise(self._network.folded)

    def folded_initial(self) -> FoldedNetwork:
        """The initial network with its batch norms folded away: a private copy."""
        self.used.add("initial_weights")
        folded = self._network.folded_initial
        if folded is None:
            raise NotApplicable("the initial weights of this network are not known")
        return _copy_or_raise(folded)

    def weights(self) -> list[Tensor]:
        """W_1 ... W_d: weights of convolution and linear layers after folding, biases not included."""
        return self.folded().weights()

    def initial_weights(self) -> list[Tensor]:
        """W⁰_1 ... W⁰_d: the same for the initial network, folded with its own statistics."""
        return self.folded_initial().weights()

    def parameters(self) -> list[Tensor]:
        """theta: every trainable parameter of the network as it is, biases and batch norms included."""
        return [p.detach() for p in self.model.parameters() if p.requires_grad]

    # -- training data -------------------------------------------------------------------------------

    def batches(self, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The training set in a fixed order, as private copies."""
        self.used.add("training_data")
        size = self._batch_size if batch_size is None else batch_size
        for start in range(0, self.m, size):
            rows = slice(start, start + size)
            yield self._network.inputs[rows].clone(), self._network.labels[rows].clone()

    def labels(self) -> Tensor:
        """Training labels, (m,) int64."""
        self.used.add("training_data")
        return self._network.labels.clone()

    def trace(self) -> dict[str, Tensor]:
        """What was recorded while the network trained, one value per epoch."""
        self.used.add("trace")
        if self._network.trace is None:
            raise NotApplicable("no trace of this network's training was kept")
        return {name: values.clone() for name, values in self._network.trace.items()}

    @cached_property
    def generator(self) -> torch.Generator:
        """Source of all randomness of this reading."""
        return torch.Generator().manual_seed(self.seed)

    # -- shared parts --------------------------------------------------------------------------------

    def logits(self) -> Tensor:
        """Outputs on the training set in order, (m, classes)."""
        self.used.add("training_data")
        return self._parts.get("logits")["logits"]

    def margins(self) -> Tensor:
        """Logit of the label minus the largest other logit, for each training example, (m,)."""
        self.used.add("training_data")
        return self._parts.get("margins")["margins"]

    def margin(self) -> float:
        """gamma: absolute value of the margin at rank floor(m/10) from below (ranks count from 1)."""
        rank = self.m // 10
        if rank < 1:
            raise NotApplicable(f"the 10th percentile of {self.m} margins is not defined; at least 10 needed")
        gamma = abs(float(self.margins().sort().values[rank - 1]))
        if gamma == 0:
            raise NotApplicable("the 10th-percentile margin is 0")
        return gamma

    def spectral_norms(self, of: str = "final", grid: str = "image") -> list[float]:
        """||W_i||_2 of every folded layer.

        `of`: "final", "initial" or "change" (W_i − W⁰_i). `grid`: "image", the Fourier grid is the input
        image's (what 001's authors computed), or "layer", it is each layer's own input size.
        """
        self.used.update(
            {"final": {"weights"}, "initial": {"initial_weights"}}.get(of, {"weights", "initial_weights"})
        )
        norms: list[float] = self._parts.get("spectral_norms", of=of, grid=grid)["norms"].tolist()
        return norms

    def sigma(self, magnitude_aware: bool = False) -> float:
        """Largest noise on the folded parameters that costs .1 of the mean training accuracy.

        u ~ N(0, sigma² I), or u_i ~ N(0, sigma² w_i² + eps²) with eps = 1e-3 if `magnitude_aware`.
        """
        self.used.update({"weights", "training_data"})
        return float(self._parts.get("sigma", magnitude_aware=magnitude_aware)["sigma"])

    def hessian_product(self, vector: list[Tensor]) -> list[Tensor]:
        """H·v for the Hessian H of the mean training cross-entropy in theta; `vector` as `parameters()`."""
        self.used.update({"gradients", "training_data"})
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        product = [torch.zeros_like(p) for p in parameters]
        for inputs, labels in self.batches():
            loss = nn.functional.cross_entropy(self.model(inputs), labels, reduction="sum") / self.m
            gradient = torch.autograd.grad(loss, parameters, create_graph=True)
            directional = torch.stack([(g * v).sum() for g, v in zip(gradient, vector, strict=True)]).sum()
            for total, term in zip(product, torch.autograd.grad(directional, parameters), strict=True):
                total += term
        return product


def _copy_or_raise(folded: FoldedNetwork | NotApplicable) -> FoldedNetwork:
    if isinstance(folded, NotApplicable):
        raise folded
    return folded.copy()


def _gathered(data: tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], Tensor)
        and isinstance(data[1], Tensor)
    ):
        inputs, labels = data[0], data[1]
    else:
        batches: list[Any] = list(data)
        if not batches:
            raise ValueError("data is empty; give (inputs, labels) or a non-empty iterable of batches")
        inputs = torch.cat([batch[0] for batch in batches])
        labels = torch.cat([batch[1] for batch in batches])
    if len(inputs) != len(labels):
        raise ValueError(f"data has {len(inputs)} inputs but {len(labels)} labels")
    return inputs.detach().clone(), labels.detach().clone().long()
