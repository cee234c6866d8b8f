"""Which code computes which kind of cell. Steps are named as text so that planning imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["STEPS", "load_step", "warm_up"]

Step = Callable[[Mapping[str, Any], Mapping[str, Path], Path], dict[str, Any]]
"""(inputs, folders of the parents, folder for its files) -> small JSON result."""

STEPS = {
    "training_data": "genbench.population.steps:training_data",
    "heldout_data": "genbench.population.steps:heldout_data",
    "network": "genbench.population.steps:train_network",
    "evidence": "genbench.population.steps:evaluate",
    "population_training": "genbench.population.pools:training_pool",
    "population_heldout": "genbench.population.pools:heldout_pool",
    "population_shifts": "genbench.population.pools:shifts",
    "population_block": "genbench.population.blocks:train_block",
    "population_network": "genbench.population.blocks:member",
    "population_evidence": "genbench.population.blocks:block_evidence",
    "images": "genbench.testbed.steps:images",
    "noise": "genbench.testbed.steps:degraded_images",
    "adapted": "genbench.testbed.steps:adapted_network",
    "features": "genbench.testbed.steps:features",
    "testbed_evidence": "genbench.testbed.steps:evidence",
    "cube": "genbench.testbed.cube_steps:cube",
    "tradeoff": "genbench.testbed.cube_steps:trade_off_point",
    "unpacked": "genbench.packs.pack:unpack",
}


def load_step(kind: str) -> Step:
    """The function that computes cells of this kind."""
    step: Step = load_named(STEPS[kind])
    return step


def warm_up(kind: str, inputs: Mapping[str, Any]) -> None:
    """Import, in this process, what cells of this kind need, so that the children it forks have it."""
    step = load_step(kind)
    prepare = getattr(import_module(step.__module__), "warm", None)
    if prepare is not None:
        prepare(inputs)


def load_named(name: str) -> Any:
    """What "package.module:attribute" names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
