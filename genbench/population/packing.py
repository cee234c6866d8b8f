"""Makes a population's evidence pack out of a store, and compares a pack with a population trained anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from genbench.engine.cells import Cell, Result
from genbench.engine.store import Store, read_manifest
from genbench.keys import canonical_json, file_hash, text_hash
from genbench.packs.build import Comparison, Draft, packed
from genbench.packs.compressed import compress_files
from genbench.packs.pack import Pack
from genbench.packs.shared_rows import share_rows
from genbench.population.manifest import PackedBlock, PopulationManifest
from genbench.population.plan import PopulationPlan

__all__ = ["compare", "fill_pack"]

_WEIGHTS = ("initial.safetensors", "final.safetensors", "trace.safetensors")
_LARGE = ("final.safetensors", "trace.safetensors")
_EVIDENCE = "evidence.safetensors"


def fill_pack(draft: Draft, plan: PopulationPlan, store: Store) -> None:
    """Write the networks and the evidence of a population trained from nothing.

    <stack>.final.safetensors.xz                              weights after training
    initial-<number>.safetensors.xz                           weights before, of stacks of one shape
    <stack>.trace.safetensors.xz                              what training recorded
    <stack>.evidence.safetensors                              right or wrong, per network and image
    """
    blocks = [
        PackedBlock(
            members,
            packed(store.folder(block.key), draft.folder, name, ("initial", "final", "trace")),
            packed(store.folder(judged.key), draft.folder, name, ("evidence",)),
        )
        for name, (block, judged, members) in _named(plan).items()
    ]
    before = [block.trained.files["initial.safetensors"].file for block in blocks]
    large = [block.trained.files[name].file for block in blocks for name in _LARGE]
    draft.parts.update(
        {
            "data_hash": _data_hash(store, plan),
            "blocks": blocks,
            "shared": share_rows(draft.folder, before, "initial", compress=True),
            "compressed": compress_files(draft.folder, large),
        }
    )


def _named(plan: PopulationPlan) -> dict[str, tuple[Cell, Cell, list[str]]]:
    """Name to block, evidence and networks, in their order within the block."""
    found = {}
    for number, (block, judged) in enumerate(zip(plan.blocks, plan.truths, strict=True)):
        mine = [s.label for s in plan.networks if s.truth is not None and s.truth.key == judged.key]
        found[f"stack-{number:02d}"] = (block, judged, sorted(mine, key=plan.places.__getitem__))
    return found


def _data_hash(store: Store, plan: PopulationPlan) -> str:
    """Of all images, training and held out."""
    folders = [store.folder(cell.key) for cell in (plan.training_data, plan.heldout_data)]
    files = sorted(file for folder in folders for file in folder.glob("*.safetensors"))
    return text_hash(canonical_json([[file.name, file_hash(file)] for file in files]))


def compare(pack: Pack, plan: PopulationPlan, store: Store) -> list[Comparison]:
    """Every stack of `pack` against the same trained anew.

    On another machine training takes another path after some steps, so networks there are others: the gaps
    say how much that matters, and nothing but the same bits confirms the pack.
    """
    found = []
    shipped = {tuple(entry.subjects): entry for entry in pack.read_as(PopulationManifest).blocks}
    for name, (block, judged, members) in _named(plan).items():
        entry = shipped.get(tuple(members))
        if entry is None:
            found.append(Comparison(name, False, float("inf"), 0.0))
            continue
        files = {**entry.trained.files, **entry.judged.files}
        folder = {file: store.folder(block.key) for file in _WEIGHTS} | {_EVIDENCE: store.folder(judged.key)}
        pack.check(files)
        same = all(files[file].sha256 == file_hash(folder[file] / file) for file in (*_WEIGHTS, _EVIDENCE))
        rebuilt = read_manifest(store.folder(judged.key))["result"]
        gaps = [_gaps(one) for one in (entry.judged.result, rebuilt)]
        found.append(Comparison(name, same, float(np.abs(gaps[0] - gaps[1]).max()), 0.0))
    return found


def _gaps(result: Result) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([network["gap"] for network in result["networks"]], dtype=np.float64)
