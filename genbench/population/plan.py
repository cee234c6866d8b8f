"""Turns a population suite into cells. Imports no torch: `genbench plan` and resuming stay instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genbench.engine.cells import Cell, NetworkCells, Step, make_cell
from genbench.keys import derive_seed
from genbench.packs.pack import Pack
from genbench.plugin.registry import load_registry
from genbench.suites import PopulationSuite

__all__ = ["PopulationPlan", "plan_population"]

TRAINING = Step("training_data", "genbench.population.steps:training_data", "training data")
HELDOUT = Step("heldout_data", "genbench.population.steps:heldout_data", "held-out data")
NETWORK = Step("network", "genbench.population.steps:train_network", "train network", 2.5)
EVIDENCE = Step("evidence", "genbench.population.steps:evaluate", "evaluate network", 0.1)
_VERSION = 1
"""Code version of the steps in `genbench.population.steps`; raise it when one would give other bits."""


@dataclass(frozen=True)
class PopulationPlan:
    """All cells of a suite but the readings."""

    training_data: Cell
    heldout_data: Cell
    subjects: list[NetworkCells]
    loader: str = "genbench.population.steps:load_network"
    """Which function gives a worker the network of a subject."""
    pack: Pack | None = None
    """Where the networks come from, if they are not trained here."""

    def cells(self) -> list[Cell]:
        """Parents before children."""
        cells = [self.training_data, self.heldout_data]
        for subject in self.subjects:
            cells += [cell for cell in (subject.network, subject.truth) if cell is not None]
        return cells


def plan_population(suite: PopulationSuite, pack: Pack | None = None) -> PopulationPlan:
    """The cells of `suite`; everything that determines a result is in its key."""
    if suite.stacked:
        from genbench.population.block_plan import plan_blocks

        return plan_blocks(suite, pack)
    dataset = load_registry().get("datasets", suite.data["dataset"]).item
    # `quick` is in the first key, and keys contain their parents': quick cells are never full ones.
    common = {"step": _VERSION, "dataset": dataset.name, "dataset_version": dataset.version}
    training = make_cell(
        TRAINING,
        f"training data of {dataset.name}",
        {**common, "train_size": suite.data["train_size"], "seed": suite.data["seed"], "quick": suite.quick},
    )
    heldout = make_cell(HELDOUT, f"held-out data of {dataset.name}", common, {"training": training})
    return PopulationPlan(
        training, heldout, [_subject(suite, point, training, heldout) for point in suite.points()]
    )


def _subject(suite: PopulationSuite, point: dict[str, Any], training: Cell, heldout: Cell) -> NetworkCells:
    label = " ".join(f"{_short(name)}={value}" for name, value in point.items())
    settings = {**suite.train, **point}
    seed = settings.pop("seed")
    network = make_cell(
        NETWORK,
        f"train {label}",
        {
            "step": _VERSION,
            **settings,
            # The architecture's shape and the seed decide the initial weights, nothing else does.
            "init_seed": derive_seed("init", seed),
            "order_seed": derive_seed("order", seed),
        },
        {"training": training},
    )
    evidence = make_cell(
        EVIDENCE, f"evaluate {label}", {"step": _VERSION}, {"network": network, "heldout": heldout}
    )
    return NetworkCells(label, point, network, evidence)


def _short(name: str) -> str:
    return {"learning_rate": "lr"}.get(name, name)
