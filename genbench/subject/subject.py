"""`Subject`: what a measure is given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from genbench.errors import NotApplicable
from genbench.subject.fitting import bytes_per_example, fitting
from genbench.subject.folding import FoldedNetwork, fold_batch_norm, knows_how_to_fold
from genbench.subject.for_authors import ForAuthors
from genbench.subject.inputs import Inputs, gathered
from genbench.subject.parts import LocalParts, PartSource
from genbench.subject.responses import first_products
from genbench.subject.sampling import double_backward

__all__ = ["Subject", "TrainedNetwork"]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class TrainedNetwork:
    """The originals behind all views of one subject. Measures never get hold of them."""

    name: str
    final: nn.Module | Callable[[], nn.Module]
    """The trained network, or what gives it when it is first asked for."""
    initial: nn.Module | Callable[[], nn.Module] | None
    """The same of the network as its training started, where known."""
    inputs: Inputs
    """Training inputs as the network takes them."""
    labels: Tensor
    classes: int
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    recorded: Mapping[str, Tensor] | Callable[[], Mapping[str, Tensor]] | None = None
    """What was recorded while it trained ("loss", "accuracy", each (epochs,)), or what gives it."""
    device: torch.device = _CPU
    """Where its weights, inputs and labels live."""
    architecture: Hashable | None = None
    """The same for networks that differ in the values of their tensors alone: these are traced once for all.
    None where nobody knows."""

    def on(self, device: torch.device) -> TrainedNetwork:
        """The same network on `device`, moved there when it is first needed; itself if it is there."""
        if device == self.device:
            return self
        return replace(
            self,
            final=lambda: copy.deepcopy(self.model).to(device),
            initial=None if self.initial is None else lambda: copy.deepcopy(self._known_initial()).to(device),
            inputs=self.inputs.to(device),
            labels=self.labels.to(device),
            device=device,
        )

    def _known_initial(self) -> nn.Module:
        assert self.initial_model is not None
        return self.initial_model

    @cached_property
    def bytes_per_example(self) -> int:
        """What a forward pass keeps of one example for its backward pass."""
        return bytes_per_example(self)

    @cached_property
    def trace(self) -> Mapping[str, Tensor] | None:
        """What was recorded while it trained, where something was."""
        return self.recorded() if callable(self.recorded) else self.recorded

    @cached_property
    def model(self) -> nn.Module:
        """The trained network."""
        return self.final if isinstance(self.final, nn.Module) else self.final()

    @cached_property
    def initial_model(self) -> nn.Module | None:
        """The network as its training started, where known."""
        if self.initial is None or isinstance(self.initial, nn.Module):
            return self.initial
        return self.initial()

    @cached_property
    def finite(self) -> bool:
        """Whether every weight, running statistics included, is a finite number."""
        return _all_finite(self.model)

    @cached_property
    def finite_outputs(self) -> bool:
        """Whether the outputs on a few training inputs are finite; huge weights overflow on all of them."""
        with torch.no_grad():
            return bool(self.model(self.inputs[:_COMPARED]).isfinite().all())

    @cached_property
    def folded(self) -> FoldedNetwork | NotApplicable:
        """The folded network, or why there is none."""
        return _attempt_folding(self.model, self.inputs[:_COMPARED], self.architecture)

    def learn_to_fold(self) -> None:
        """Trace it if it is the first of its architecture: processes that are forked from here need not."""
        if self.architecture is not None and not knows_how_to_fold(self.architecture) and self.finite:
            _ = self.folded

    @cached_property
    def folded_initial(self) -> FoldedNetwork | NotApplicable | None:
        """The folded initial network, folded with its own statistics."""
        if self.initial_model is None:
            return None
        if not _all_finite(self.initial_model):
            return NotApplicable("the initial weights are not finite")
        return _attempt_folding(self.initial_model, self.inputs[:_COMPARED], self.architecture)


_COMPARED = 4
"""Training inputs on which the folded network's outputs are compared with the original's, if finite."""


def _all_finite(model: nn.Module) -> bool:
    values = []
    for module in model.modules():
        values += [weight.detach() for weight in module._parameters.values() if weight is not None]
        # Of the buffers only the statistics of batch norm: a mask may well hold −inf.
        statistics = (module._buffers.get(name) for name in _STATISTICS)
        values += [kept.detach() for kept in statistics if kept is not None]
    # Small ones together: looking at one costs more than at its numbers.
    small = [v.flatten() for v in values if v.numel() <= _SMALL]
    large = [v for v in values if v.numel() > _SMALL]
    return all(bool(v.isfinite().all()) for v in (*([torch.cat(small)] if small else []), *large))


_STATISTICS = ("running_mean", "running_var")
_SMALL = 2**14
"""Numbers of a tensor that is copied to be looked at with others."""


def _attempt_folding(
    model: nn.Module, example: Tensor, architecture: Hashable | None
) -> FoldedNetwork | NotApplicable:
    try:
        return fold_batch_norm(model, example, architecture)
    except NotApplicable as refusal:
        return refusal


class Subject(ForAuthors):
    """One trained network and its training data, for one reading of one measure.

    Everything that can be changed is a private copy: whatever a measure does to it, no other reading
    moves. There is no held-out data here. Expensive parts that many measures need (`logits`, `margins`,
    `spectral_norms`, `sigma`, `activations`, all methods of `SharedParts`) are computed once for all its
    readings, and so is what an author's own measures share (`shared`, `cached`).

    Where a network lacks something (no initial weights, a forward pass that cannot be traced), asking for
    it raises `genbench.NotApplicable`, which a measure simply lets through. A network whose weights are not
    all finite is no subject at all: making one raises it, so that no measure has to look.
    """

    def __init__(
        self, network: TrainedNetwork, parts: PartSource, *, seed: int = 0, batch_size: int = 256
    ) -> None:
        if not network.finite:
            raise NotApplicable("the weights are not finite")
        self._network = network
        self._parts = parts
        self._batch_size = batch_size
        self.seed = seed
        """Seed of this reading: a function of suite, subject, measure and repeat."""
        self.used: set[str] = set()
        """Which of `genbench.plugin.contract.NEEDS` were asked for, so that `genbench check` can compare."""

    @classmethod
    def from_module(
        cls,
        model: nn.Module,
        *,
        data: tuple[Tensor | Inputs, Tensor] | Iterable[tuple[Tensor, Tensor]],
        initial: nn.Module | None = None,
        classes: int | None = None,
        name: str = "network",
        trace: Mapping[str, Tensor] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        seed: int = 0,
        batch_size: int = 256,
    ) -> Subject:
        """A subject from any torch module.

        Parameters
        ----------
        model : the trained network; it is copied and put into eval mode.
        data : the training set as tensors (inputs, labels), or an iterable of such batches. Either is copied
            once and kept: what the caller does to its tensors later changes no reading. Where that is too
            much, give `genbench.subject.inputs.Inputs` in place of the inputs, for example of a mapped file:
            they are read batch by batch and must not change.
        initial : the network as its training started; None makes measures that need it not applicable.
        classes : number of classes; by default the width of the network's output.
        trace : what was recorded while it trained, one value per epoch ("loss", "accuracy", …).
        hyperparameters : how it was made, for measures that ask: names and values as you like.
        """
        inputs, labels = gathered(data)
        model = copy.deepcopy(model).eval()
        if classes is None:
            with torch.no_grad():
                classes = int(model(inputs[:1]).shape[-1])
        network = TrainedNetwork(
            name=name,
            final=model,
            initial=None if initial is None else copy.deepcopy(initial).eval(),
            inputs=inputs,
            labels=labels,
            classes=classes,
            hyperparameters=dict(hyperparameters or {}),
            recorded=trace,
            device=inputs.device,
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
        """How the network was made, where known; what there is to know depends on where it comes from.

        Networks of a collection have the settings of its table, those of a population their architecture
        (`architecture`, `depth`, `width`, …), those of a testbed `backbone` and `weights`; a network from
        `from_module` has what was given there. A measure that needs one raises `genbench.NotApplicable`
        where it is missing.
        """
        return dict(self._network.hyperparameters)

    @property
    def device(self) -> torch.device:
        """Where the network, its inputs and its labels live; make tensors of your own there."""
        return self._network.device

    @property
    def provides(self) -> frozenset[str]:
        """Which of `genbench.plugin.contract.NEEDS` this subject can give."""
        given = {"weights", "training_data", "gradients"}
        if self._network.initial is not None:
            given.add("initial_weights")
        if self._network.recorded is not None:
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
        if not _all_finite(self._network.initial_model):
            raise NotApplicable("the initial weights are not finite")
        return copy.deepcopy(self._network.initial_model)

    def folded(self) -> FoldedNetwork:
        """The trained network with its batch norms folded away: a private copy."""
        self.used.add("weights")
        return _or_raise(self._network.folded).copy()

    def folded_initial(self) -> FoldedNetwork:
        """The initial network with its batch norms folded away: a private copy."""
        return self._original_folded_initial().copy()

    def _original_folded_initial(self) -> FoldedNetwork:
        self.used.add("initial_weights")
        folded = self._network.folded_initial
        if folded is None:
            raise NotApplicable("the initial weights of this network are not known")
        return _or_raise(folded)

    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers behind `weights()`."""
        return _or_raise(self._network.folded).layer_names

    def weights(self) -> list[Tensor]:
        """W_1 ... W_d: weights of convolution and linear layers after folding, biases not included."""
        self.used.add("weights")
        return [weight.clone() for weight in _or_raise(self._network.folded).weights()]

    def initial_weights(self) -> list[Tensor]:
        """W⁰_1 ... W⁰_d: the same for the initial network, folded with its own statistics."""
        return [weight.clone() for weight in self._original_folded_initial().weights()]

    def parameters(self) -> list[Tensor]:
        """theta: every trainable parameter of the network as it is, biases and batch norms included."""
        self.used.add("weights")
        return [p.detach().clone() for p in self._network.model.parameters() if p.requires_grad]

    def parameter_changes(self) -> list[Tensor]:
        """theta − theta⁰: how every trainable parameter changed in training."""
        initial = dict(self.initial_model.named_parameters())
        changes = []
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                if name not in initial or initial[name].shape != parameter.shape:
                    raise NotApplicable(f"the initial network has no parameter {name} of the same shape")
                changes.append((parameter - initial[name]).detach())
        return changes

    # -- training data -------------------------------------------------------------------------------

    def batches(self, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The training set in a fixed order, as private copies; read and prepared batch by batch.

        Without a size, in batches whose gradients fit into memory: 256 examples, fewer of a large network.
        """
        self.used.add("training_data")
        size = fitting(self._network, self._batch_size) if batch_size is None else batch_size
        parts = [slice(start, start + size) for start in range(0, self.m, size)]
        for rows, inputs in zip(parts, self._network.inputs.stream(parts, private=True), strict=True):
            yield inputs, self._network.labels[rows].clone()

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
        """Source of all randomness of this reading.

        It draws on the CPU, so that draws are the same on every device: `torch.randn(n, generator=
        subject.generator, device="cpu").to(subject.device)`.
        """
        return torch.Generator("cpu").manual_seed(self.seed)

    def hessian_product(self, vector: list[Tensor]) -> list[Tensor]:
        """H·v for the Hessian H of the mean training cross-entropy in theta; `vector` as `parameters()`."""
        self.used.update({"gradients", "training_data"})
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        product = [torch.zeros_like(p) for p in parameters]
        # Of a graph of the gradient as much again is kept.
        for inputs, labels in self.batches(fitting(self._network, self._batch_size, copies=2)):
            with double_backward():
                loss = nn.functional.cross_entropy(self.model(inputs), labels, reduction="sum") / self.m
                gradient = torch.autograd.grad(loss, parameters, create_graph=True)
                terms = torch.autograd.grad(gradient, parameters, vector)
            for total, term in zip(product, terms, strict=True):
                total += term
        return product

    def first_products(self, size: int) -> tuple[Tensor, Tensor]:
        """Inner products (n, n) of the first block's outputs, and labels of at most `size` training examples.

        The origin is the output of one of them. On the CPU where the subject's device has no float64.
        """
        self.used.update({"weights", "training_data"})
        return first_products(self._network, size)


def _or_raise(folded: FoldedNetwork | NotApplicable) -> FoldedNetwork:
    if isinstance(folded, NotApplicable):
        raise folded
    return folded
