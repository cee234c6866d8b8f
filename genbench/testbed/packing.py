"""Makes a testbed's evidence pack out of a store, and compares a pack with evidence built anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from genbench.engine.steps import read_result
from genbench.engine.store import Store
from genbench.keys import file_hash
from genbench.packs.build import Comparison, Draft, packed
from genbench.packs.compressed import compress_files
from genbench.packs.manifest import Packed, PackedFile
from genbench.packs.pack import Pack, copy_files
from genbench.testbed.cube_steps import CUBE_FILE
from genbench.testbed.manifest import TestbedManifest
from genbench.testbed.plan import IMAGES, NOISE, TestbedPlan
from genbench.testbed.step_types import TRAINING_FILE, ImageResult, NoiseResult

__all__ = ["CUBE_TOLERANCE", "compare", "fill_pack"]

_STEMS = ("final", "trace", "training")
_FINAL = "final.safetensors"
CUBE_TOLERANCE = 1e-3
"""How far any statistic of a cube may move on another machine."""


def fill_pack(draft: Draft, plan: TestbedPlan, store: Store) -> None:
    """Write the networks and cubes of a finished from-scratch run.

    <network>.final.safetensors.xz    adapted weights, fp16
    <network>.trace.safetensors       what adaptation recorded
    <network>.training.safetensors    rows and labels it was trained on, if not all; once for equal ones
    <family>.cube.nc                  the cube
    """
    noise = next(cell for cell in plan.steps if cell.step == NOISE)
    heldout = next(c for c in plan.steps if c.step == IMAGES and c.inputs["part"] == "heldout")
    networks = {
        subject.label: packed(store.folder(subject.network.key), draft.folder, subject.label, _STEMS)
        for subject in plan.networks
    }
    kept = _once(draft.folder, networks)
    finals = [entry.files[_FINAL].file for entry in kept.values()]
    draft.parts.update(
        {
            "networks": kept,
            "compressed": compress_files(draft.folder, finals),
            "cubes": {
                name: packed(store.folder(family.cube.key), draft.folder, name, ("cube",))
                for name, family in plan.families.items()
            },
            "data_hash": read_result(store.folder(heldout.key), ImageResult).data_hash,
            "noise": read_result(store.folder(noise.key), NoiseResult).recipe,
        }
    )


def _once(folder: Path, networks: Mapping[str, Packed]) -> dict[str, Packed]:
    """The same entries, with one file for all networks that were trained on the same rows and labels."""
    first: dict[str, PackedFile] = {}
    found = {}
    for label, entry in networks.items():
        files = dict(entry.files)
        if (own := files.get(TRAINING_FILE)) is not None:
            files[TRAINING_FILE] = first.setdefault(own.sha256, own)
            if files[TRAINING_FILE] != own:
                (folder / own.file).unlink()
        found[label] = Packed(files, entry.result)
    return found


def compare(pack: Pack, plan: TestbedPlan, store: Store) -> list[Comparison]:
    """Every network and cube of `pack` against those of a finished from-scratch run."""
    found, shipped = [], pack.read_as(TestbedManifest)
    for subject in plan.networks:
        entry = shipped.networks[subject.label].files[_FINAL]
        rebuilt = store.folder(subject.network.key) / _FINAL
        with TemporaryDirectory() as folder:
            copy_files(pack.folder, {_FINAL: entry}, Path(folder), compressed=shipped.compressed)
            found.append(_compared_networks(subject.label, Path(folder) / _FINAL, rebuilt))
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
