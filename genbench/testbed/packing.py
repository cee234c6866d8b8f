"""Makes a testbed's evidence pack out of a store, and compares a pack with evidence built anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from genbench.engine.steps import read_result
from genbench.engine.store import Store
from genbench.keys import file_hash
from genbench.packs.build import Comparison, Draft, packed
from genbench.packs.pack import Pack
from genbench.testbed.cube_steps import CUBE_FILE
from genbench.testbed.manifest import TestbedManifest
from genbench.testbed.plan import IMAGES, NOISE, TestbedPlan
from genbench.testbed.step_types import ImageResult, NoiseResult

__all__ = ["CUBE_TOLERANCE", "compare", "fill_pack"]

CUBE_TOLERANCE = 1e-3
"""How far any statistic of a cube may move on another machine."""


def fill_pack(draft: Draft, plan: TestbedPlan, store: Store) -> None:
    """Write the networks and cubes of a finished from-scratch run.

    <backbone>.final.safetensors    adapted weights, fp16
    <backbone>.trace.safetensors    what adaptation recorded
    <family>.cube.nc                the cube
    """
    noise = next(cell for cell in plan.steps if cell.step == NOISE)
    heldout = next(c for c in plan.steps if c.step == IMAGES and c.inputs["part"] == "heldout")
    draft.parts.update(
        {
            "networks": {
                subject.label: packed(
                    store.folder(subject.network.key), draft.folder, subject.label, ("final", "trace")
                )
                for subject in plan.networks
            },
            "cubes": {
                name: packed(store.folder(family.cube.key), draft.folder, name, ("cube",))
                for name, family in plan.families.items()
            },
            "data_hash": read_result(store.folder(heldout.key), ImageResult).data_hash,
            "noise": read_result(store.folder(noise.key), NoiseResult).recipe,
        }
    )


def compare(pack: Pack, plan: TestbedPlan, store: Store) -> list[Comparison]:
    """Every network and cube of `pack` against those of a finished from-scratch run."""
    found, shipped = [], pack.read_as(TestbedManifest)
    for subject in plan.networks:
        entry = shipped.networks[subject.label].files["final.safetensors"]
        rebuilt = store.folder(subject.network.key) / "final.safetensors"
        found.append(_compared_networks(subject.label, pack.folder / entry.file, rebuilt))
    for name, family in plan.families.items():
        entry = shipped.cubes[name].files[CUBE_FILE]
        rebuilt = store.folder(family.cube.key) / CUBE_FILE
        found.append(_compared_cubes(name, pack.folder / entry.file, rebuilt))
    return found


def _compared_networks(name: str, shipped: Path, rebuilt: Path) -> Comparison:
    from safetensors.numpy import load_file

    same = file_hash(shipped) == file_hash(rebuilt)
    first, second = load_file(shipped), load_file(rebuilt)
    if first.keys() != second.keys():
        return Comparison(name, False, float("inf"), 0.0)
    difference = max(
        float(np.abs(first[key].astype(np.float64) - second[key].astype(np.float64)).max(initial=0.0))
        for key in first
    )
    return Comparison(name, same, difference, None)


def _compared_cubes(name: str, shipped: Path, rebuilt: Path) -> Comparison:
    from genbench.testbed.cube import STATISTICS, read_cube

    first, second = read_cube(shipped), read_cube(rebuilt)
    if first.sizes != second.sizes:
        return Comparison(f"cube of {name}", False, float("inf"), CUBE_TOLERANCE)
    difference = max(
        float(np.abs(first[statistic].values - second[statistic].values).max()) for statistic in STATISTICS
    )
    same = all(first[v].equals(second[v]) for v in first.data_vars)
    return Comparison(f"cube of {name}", same, difference, CUBE_TOLERANCE)
