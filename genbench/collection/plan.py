"""Turns a collection into cells. Imports neither torch nor a line of the user's code.

    training images ─> network ─> readings

Keys contain what is in the user's files, never where they lie: an edited file is read anew, and a folder may
be moved. Truths are in the suite's own table, so there are no cells for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import to_builtins

from genbench.collection.network_rows import NetworkRow
from genbench.collection.step_types import NetworkHow, NetworkInputs, TrainingHow, TrainingInputs
from genbench.collection.suite import CollectionSuite
from genbench.collection.user_code import hash_once
from genbench.data.content_mark import content_mark
from genbench.engine.cells import Cell, NetworkCells, Step, make_cell
from genbench.plugin.offers import DataRequest
from genbench.plugin.registry import load_registry
from genbench.suites.plan import EvidencePlan

__all__ = ["CollectionPlan", "plan_collection"]

_VERSION = 1
"""Code version of the steps in `genbench.collection`; raise it when one would give other bits."""

TRAINING = Step(
    "collection_training",
    "genbench.collection.steps:training_data",
    "training images",
    users_code=True,
    at_home=True,
)
NETWORK = Step(
    "collection_network",
    "genbench.collection.steps:take_network",
    "read network",
    users_code=True,
    at_home=True,
)


@dataclass(frozen=True, kw_only=True)
class CollectionPlan(EvidencePlan):
    """Networks have no truth cells: what they did on held-out data is in the suite's table."""

    loader: str = "genbench.collection.steps:load_network"

    def cells(self) -> list[Cell]:
        """Parents before children."""
        return [self.training_data, *(one.network for one in self.networks)]


def plan_collection(suite: CollectionSuite) -> CollectionPlan:
    """The cells of `suite`."""
    training, missing = _training(suite)
    builder = suite.builder.content()
    networks = [
        NetworkCells(
            row.name, {**row.settings, "seed": row.seed}, _network(suite, row, builder, training), None
        )
        for row in suite.table.rows
    ]
    return CollectionPlan(training_data=training, networks=networks, missing=missing)


def _training(suite: CollectionSuite) -> tuple[Cell, tuple[str, ...]]:
    """The cell with the training data, and what is not on this machine."""
    if suite.data_function is not None:
        function = suite.data_function
        inputs = TrainingInputs(step=_VERSION, data=suite.data, code=function.content(), quick=suite.quick)
        how = to_builtins(TrainingHow(function=function))
        return make_cell(TRAINING, f"training data of {function.spec}", inputs, how=how), ()
    entry, argument = load_registry().resolve("datasets", suite.dataset)
    found = entry.item.available(DataRequest(argument=argument))
    inputs = TrainingInputs(
        step=_VERSION,
        dataset=suite.data.dataset,
        data=suite.data,
        version=entry.item.version,
        content=content_mark(suite.dataset),
        quick=suite.quick,
    )
    how = to_builtins(TrainingHow(dataset=suite.dataset))
    cell = make_cell(TRAINING, f"training images of {suite.data.dataset}", inputs, how=how)
    return cell, () if found.ready else (f"{suite.path}: data.dataset: {found.detail}",)


def _network(suite: CollectionSuite, row: NetworkRow, builder: str, training: Cell) -> Cell:
    final, initial = suite.weights_of(row)
    inputs = NetworkInputs(
        step=_VERSION,
        network=row.name,
        hyperparameters=dict(row.settings),
        builder=suite.builder.spec,
        code=builder,
        weights=hash_once(final),
        initial=None if initial is None else hash_once(initial),
        strip=suite.files.strip or "",
    )
    how = NetworkHow(
        builder=suite.builder, weights=str(final), initial=None if initial is None else str(initial)
    )
    label = f"read network {row.name} with {suite.builder.spec}"
    return make_cell(NETWORK, label, inputs, {"training": training}, how=to_builtins(how))
