"""Makes evidence packs out of a store, and compares a pack with evidence built anew."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genbench.engine.store import Store, read_manifest, write_atomically
from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.suites import TestbedSuite
from genbench.testbed.cubes import CUBE_FILE
from genbench.testbed.pack import FORMAT, MANIFEST, Pack
from genbench.testbed.plan import TestbedPlan

__all__ = ["CUBE_TOLERANCE", "Comparison", "build_pack", "compare"]

CUBE_TOLERANCE = 1e-3
"""How far any statistic of a cube may move on another machine."""


def build_pack(
    suite: TestbedSuite,
    plan: TestbedPlan,
    store: Store,
    target: Path,
    provenance: Mapping[str, Any],
    version: int = 1,
) -> None:
    """Write the networks and cubes of a finished from-scratch run as a pack; `target` appears whole."""
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UserError(f"{target} is neither empty nor an evidence pack; choose a new folder with --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        networks = {
            subject.label: _packed(
                store.folder(subject.network.key), staged, subject.label, ("final", "trace")
            )
            for subject in plan.subjects
        }
        cubes = {
            name: _packed(store.folder(family.cube.key), staged, name, ("cube",))
            for name, family in plan.families.items()
        }
        noise = next(cell for cell in plan.steps if cell.kind == "noise")
        heldout = next(c for c in plan.steps if c.kind == "images" and c.inputs["part"] == "heldout")
        manifest = {
            "format": FORMAT,
            "suite": suite.name,
            "version": version,
            "summary": suite.summary,
            "evidence": suite.evidence(),
            "data_hash": read_manifest(store.folder(heldout.key))["result"]["data_hash"],
            "noise": read_manifest(store.folder(noise.key))["result"]["recipe"],
            "networks": networks,
            "cubes": cubes,
            "built": dict(provenance),
        }
        write_atomically(staged / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        staged.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _packed(folder: Path, target: Path, name: str, stems: tuple[str, ...]) -> dict[str, Any]:
    files = {}
    for source in sorted(folder.iterdir()):
        if source.stem in stems:
            own = f"{name.replace(':', '-').replace('/', '-')}.{source.name}"
            shutil.copyfile(source, target / own)
            files[source.name] = {"file": own, "sha256": file_hash(target / own)}
    return {"files": files, "result": read_manifest(folder)["result"]}


@dataclass(frozen=True)
class Comparison:
    """One file of a pack against the same made anew."""

    name: str
    same_bits: bool
    difference: float
    """Largest absolute difference: of a weight, or of a statistic of a cube."""
    tolerance: float | None
    """What `difference` may be; None where only the cube that follows from it counts."""

    @property
    def agrees(self) -> bool:
        """Whether the pack is confirmed."""
        return self.same_bits or self.tolerance is None or self.difference <= self.tolerance


def compare(pack: Pack, plan: TestbedPlan, store: Store) -> list[Comparison]:
    """Every network and cube of `pack` against those of a finished from-scratch run."""
    found = []
    for subject in plan.subjects:
        entry = pack.manifest["networks"][subject.label]["files"]["final.safetensors"]
        rebuilt = store.folder(subject.network.key) / "final.safetensors"
        found.append(_compared_networks(subject.label, pack.folder / entry["file"], rebuilt))
    for name, family in plan.families.items():
        entry = pack.manifest["cubes"][name]["files"][CUBE_FILE]
        rebuilt = store.folder(family.cube.key) / CUBE_FILE
        found.append(_compared_cubes(name, pack.folder / entry["file"], rebuilt))
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
    from genbench.scoring.cube import STATISTICS, read_cube

    first, second = read_cube(shipped), read_cube(rebuilt)
    if first.sizes != second.sizes:
        return Comparison(f"cube of {name}", False, float("inf"), CUBE_TOLERANCE)
    difference = max(
        float(np.abs(first[statistic].values - second[statistic].values).max()) for statistic in STATISTICS
    )
    same = all(first[v].equals(second[v]) for v in first.data_vars)
    return Comparison(f"cube of {name}", same, difference, CUBE_TOLERANCE)
