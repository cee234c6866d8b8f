"""The cells of the audit: stacks of networks that are kept on their way, and what they do on held-out images.

Trained weights are kept in half precision, and a network of the audit is the one with these weights: its
errors are measured on it as its readings are. So some 500 networks fit into a pack of a few megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from genbench.audit.images import heldout_set, pixel_order, training_set, validation_set
from genbench.audit.networks import make_audit_network
from genbench.audit.step_types import (
    BEST_ACCURACY,
    BEST_LOSS,
    END,
    INTERPOLATION,
    AuditImages,
    AuditShape,
    ContinuedInputs,
    JudgedStack,
    KeptNetwork,
    StackInputs,
    StackResult,
    TruthInputs,
)
from genbench.data.tensor_file import read_row
from genbench.engine.compute import compute_device
from genbench.engine.steps import read_result
from genbench.keys import text_hash
from genbench.population.memory import keep_freed_memory
from genbench.population.pools import TrainingSet, standardised
from genbench.population.stacked_training import EpochEnd, StackedTraining, train_stacked
from genbench.subject.module_copies import with_state
from genbench.subject.subject import TrainedNetwork

__all__ = [
    "continue_stack",
    "judge_stack",
    "kept_model",
    "load_kept",
    "save_states",
    "save_traces",
    "train_stack",
]

_FINAL, _INITIAL, _TRACE = "final.safetensors", "initial.safetensors", "trace.safetensors"
State = dict[str, Tensor]


class _Keeper:
    """Looks at a stack after every epoch, and copies the networks that were asked for."""

    def __init__(
        self, keep: Sequence[int | str], count: int, validation: tuple[Tensor, Tensor] | None
    ) -> None:
        self._keep = keep
        self._found: list[dict[str, tuple[int, State, float, float]]] = [{} for _ in range(count)]
        self._best: list[dict[str, float]] = [{} for _ in range(count)]
        self._validation = validation

    def watch(self, end: EpochEnd) -> None:
        scores = self._validated(end)
        for place, network in enumerate(end.networks):
            found = self._found[network]
            marks = [str(end.epoch)] if end.epoch in self._keep else []
            if INTERPOLATION in self._keep and INTERPOLATION not in found and end.accuracy[place] == 1.0:
                marks.append(INTERPOLATION)
            for mark, values in scores.items():
                # Strictly better: of equals, the first.
                if values[place] < self._best[network].get(mark, math.inf):
                    self._best[network][mark] = values[place]
                    marks.append(mark)
            for mark in marks:
                found[mark] = (end.epoch, end.stack.state(place), end.loss[place], end.accuracy[place])

    def _validated(self, end: EpochEnd) -> dict[str, list[float]]:
        """Mark to what is to be small on the validation images."""
        if self._validation is None:
            return {}
        images, labels = self._validation
        logits = end.stack.evaluate(images)
        each = nn.functional.cross_entropy(
            logits.transpose(1, 2), labels.expand(len(end.stack), -1), reduction="none"
        )
        wrong = (logits.argmax(dim=2) != labels).double().mean(dim=1)
        return {BEST_LOSS: each.double().mean(dim=1).tolist(), BEST_ACCURACY: wrong.tolist()}

    def kept(
        self, trained: Sequence[StackedTraining], before: Sequence[int] = ()
    ) -> tuple[list[KeptNetwork], list[State]]:
        """Row by row; what was never reached is kept as training ended.

        Parameters
        ----------
        before : epochs that each network was trained before.
        """
        rows, states = [], []
        for network, history in enumerate(trained):
            last = (len(history.loss), history.state, history.loss[-1], history.accuracy[-1])
            for mark in map(str, self._keep):
                reached = mark == END or mark in self._found[network]
                epoch, state, loss, accuracy = self._found[network].get(mark, last)
                states.append(state)
                rows.append(
                    KeptNetwork(
                        network=network,
                        mark=mark,
                        epoch=epoch + (before[network] if before else 0),
                        reached=reached,
                        train_loss=loss if math.isfinite(loss) else None,
                        train_accuracy=accuracy,
                        stopped=history.converged,
                    )
                )
        return rows, states


def train_stack(inputs: StackInputs, parents: Mapping[str, Path], out: Path) -> StackResult:
    """Train networks at once and keep them as they are asked for."""
    keep_freed_memory()
    data = training_set(parents["training"], inputs.images)
    networks = [_fresh(inputs.shape, inputs.images, one.init_seed) for one in inputs.networks]
    keeper = _Keeper(inputs.keep, len(networks), _validation(parents["training"], inputs.images, data))
    device = compute_device()
    trained = train_stacked(
        networks,
        data.inputs(device),
        data.labels.to(device),
        inputs.recipe,
        inputs.networks,
        keeper.watch,
    )
    rows, states = keeper.kept(trained)
    save_states([dict(network.state_dict()) for network in networks], out / _INITIAL)
    save_states([_halved(state) for state in states], out / _FINAL)
    save_traces([one.trace() for one in trained], out / _TRACE)
    return _result(inputs.shape, inputs.images, data, networks[0], rows)


def continue_stack(inputs: ContinuedInputs, parents: Mapping[str, Path], out: Path) -> StackResult:
    """Train networks of another stack further, from where they first fitted their training set."""
    keep_freed_memory()
    start = read_result(parents["start"], StackResult)
    rows = [_row(start, network, INTERPOLATION) for network in inputs.chosen]
    networks = [kept_model(parents["start"], start.shape, row) for row in rows]
    data, device = training_set(parents["training"], start.images), compute_device()
    keeper = _Keeper(inputs.keep, len(networks), None)
    trained = train_stacked(
        networks,
        data.inputs(device),
        data.labels.to(device),
        inputs.recipe,
        inputs.networks,
        keeper.watch,
    )
    before = [start.kept[row].epoch for row in rows]
    kept, states = keeper.kept(trained, before)
    first = [read_row(parents["start"] / _INITIAL, network) for network in inputs.chosen]
    save_states(first, out / _INITIAL)
    save_states([_halved(state) for state in states], out / _FINAL)
    traces = []
    for network, epochs, one in zip(inputs.chosen, before, trained, strict=True):
        earlier = _trace(parents["start"] / _TRACE, network, epochs)
        traces.append({name: torch.cat([earlier[name], value]) for name, value in one.trace().items()})
    save_traces(traces, out / _TRACE)
    return _result(start.shape, start.images, data, networks[0], kept)


def _fresh(shape: AuditShape, images: AuditImages, seed: int) -> nn.Module:
    network = make_audit_network(shape, seed)
    if images.permutation == "shared" and shape.architecture == "fcn":
        # The weights move with the pixels: but for rounding it is then the run on images as they are.
        first = network.get_submodule("hidden.0")
        assert isinstance(first, nn.Linear)
        with torch.no_grad():
            first.weight.copy_(first.weight[:, pixel_order()].clone())
    return network


def _validation(pool: Path, images: AuditImages, data: TrainingSet) -> tuple[Tensor, Tensor] | None:
    if not images.validation:
        return None
    raw, labels = validation_set(pool, images)
    device = compute_device()
    return standardised(raw, data.mean, data.std).to(device), labels.to(device)


def _row(stack: StackResult, network: int, mark: str) -> int:
    return next(i for i, one in enumerate(stack.kept) if (one.network, one.mark) == (network, mark))


def _result(
    shape: AuditShape, images: AuditImages, data: TrainingSet, network: nn.Module, rows: list[KeptNetwork]
) -> StackResult:
    return StackResult(
        shape=shape,
        images=images,
        mean=data.mean,
        std=data.std,
        parameters=sum(p.numel() for p in network.parameters()),
        kept=rows,
    )


# -- files -------------------------------------------------------------------------------------------------


def _halved(state: State) -> State:
    """Weights in half precision; what norms have seen stays as it is, because variances may be tiny."""
    return {
        name: value.half() if value.is_floating_point() and "running" not in name else value
        for name, value in state.items()
    }


def save_states(states: Sequence[State], file: Path) -> None:
    """Stacked: row i of every tensor is network i."""
    save_file({name: torch.stack([state[name] for state in states]) for name in states[0]}, file)


def save_traces(traces: Sequence[Mapping[str, Tensor]], file: Path) -> None:
    """In single precision: they are for measures of training, which are rough."""
    save_file({f"{i}.{name}": v.float() for i, one in enumerate(traces) for name, v in one.items()}, file)


def _trace(file: Path, network: int, epochs: int) -> State:
    with safe_open(file, framework="pt") as traces:
        mine = [key for key in traces.keys() if key.startswith(f"{network}.")]  # noqa: SIM118
        return {
            key.partition(".")[2]: traces.get_tensor(key)[:epochs].clone().double() for key in sorted(mine)
        }


def kept_model(stack: Path, shape: AuditShape, row: int, file: str = _FINAL) -> nn.Module:
    """One network of a stack, in eval mode."""
    state = {
        name: value.float() if value.is_floating_point() else value
        for name, value in read_row(stack / file, row).items()
    }
    return with_state(_plan(shape), state)


@lru_cache(maxsize=4)
def _plan(shape: AuditShape) -> nn.Module:
    """A network with weights that nobody asks for."""
    return make_audit_network(shape, seed=0).eval()


def load_kept(name: str, network: Path, training: Path, place: int) -> TrainedNetwork:
    """The originals of a subject: row `place` of a stack, and its training images."""
    stack = read_result(network, StackResult)
    kept, data = stack.kept[place], _images(training, stack.images)
    return TrainedNetwork(
        name=name,
        final=lambda: kept_model(network, stack.shape, place),
        initial=lambda: kept_model(network, stack.shape, kept.network, _INITIAL),
        inputs=data.inputs(data.raw.device),
        labels=data.labels,
        classes=data.classes,
        recorded=lambda: _trace(network / _TRACE, kept.network, kept.epoch),
    )


@lru_cache(maxsize=2)
def _images(pool: Path, choice: AuditImages) -> TrainingSet:
    return training_set(pool, choice)


# -- truths ------------------------------------------------------------------------------------------------


def judge_stack(inputs: TruthInputs, parents: Mapping[str, Path], out: Path) -> JudgedStack:
    """Errors on held-out images, in the precision that weights are stored in where that is double."""
    folder = parents["stack"]
    stack = read_result(folder, StackResult)
    raw, labels = heldout_set(parents["heldout"], stack.images)
    images = standardised(raw, stack.mean, stack.std)
    states = load_file(folder / _FINAL)
    double = any(value.dtype == torch.float64 for value in states.values())
    predicted: list[Tensor | None] = []
    for row in range(len(stack.kept)):
        model = kept_model(folder, stack.shape, row)
        if double:
            model = make_audit_network(stack.shape, seed=0).double().eval()
            model.load_state_dict({name: value[row] for name, value in states.items()})
        with torch.no_grad():
            logits = model(images.double() if double else images)
        predicted.append(logits.argmax(dim=1) if bool(logits.isfinite().all()) else None)
    return JudgedStack(
        error=[None if p is None else float((p != labels).double().mean()) for p in predicted],
        test_size=len(labels),
        predictions=["" if p is None else text_hash(str(p.tolist()))[:16] for p in predicted],
    )
