"""Leak canaries: networks in worlds that differ in their evidence alone.

A few fresh networks are laid out three times, each time as a decoy pack with the truths of the networks and
labels of held-out images beside their weights, within reach of the sealed reading: as they are, with the
truths of two networks swapped, and with other labels. Weights, training data and seeds are the same. A
measure whose reading is not, has read what it must not look for.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from msgspec import to_builtins

from genbench.engine.cells import Cell, NetworkCells, Outcome
from genbench.engine.scheduler import Progress
from genbench.engine.store import COST, MANIFEST, read_manifest, stored_folder
from genbench.keys import cell_key, file_hash
from genbench.packs.manifest import FORMAT, Manifest, Packed, PackedFile
from genbench.packs.pack import MANIFEST as PACK_MANIFEST
from genbench.packs.pack import Pack, unpacked_cell
from genbench.plugin.contract import Measure
from genbench.plugin.registry import Entry
from genbench.runs.execute import RunOptions, bring_to_end
from genbench.runs.plan import Plan, reading_cell
from genbench.suites.evidence import Evidence
from genbench.suites.plan import EvidencePlan

__all__ = ["WORLDS", "find_leaks"]

WORLDS = ("as they are", "truths swapped", "labels changed")
_NETWORKS = 2
"""Whose truths are swapped."""
_LABELS = 200


@dataclass(frozen=True, kw_only=True)
class _Decoys(EvidencePlan):
    """Networks out of decoy packs, and the training data of the suite."""

    def cells(self) -> list[Cell]:
        """Parents before children."""
        return list(
            {one.key: one for one in [self.training_data, *(n.network for n in self.networks)]}.values()
        )


def find_leaks(
    plan: Plan,
    entry: Entry[Measure],
    evidence: Evidence,
    outcomes: Mapping[str, Outcome],
    store: Path,
    progress: Progress,
    *,
    seed: int,
    **how: Unpack[RunOptions],
) -> tuple[int, list[str]]:
    """How many readings were taken, and the worlds in which one was another.

    Parameters
    ----------
    plan : of the fresh networks, brought to its end in `store`.
    outcomes : network to its reading; one that has a value is a better canary.
    """
    draw = random.Random(seed)
    networks = sorted(plan.evidence.networks, key=lambda one: outcomes[one.label].value is None)[
        : 4 * _NETWORKS
    ]
    pair = draw.sample(networks, min(_NETWORKS, len(networks)))
    found: dict[str, list[tuple[str, float | None]]] = {}
    with TemporaryDirectory(prefix="genbench-decoys-") as folder:
        for number, world in enumerate(WORLDS):
            laid = _lay_out(pair, evidence, store, Path(folder) / str(number), number, seed)
            decoys = _Decoys(
                training_data=plan.evidence.training_data, networks=laid, loader=plan.evidence.loader
            )
            cells = {
                (entry.item.name, one.label): _apart(
                    reading_cell(plan.suite, decoys, one, entry), seed, world
                )
                for one in laid
            }
            readings = bring_to_end(
                replace(plan, evidence=decoys, readings=cells),
                store,
                progress,
                lambda _, done: dict(done),
                **how,
            )
            found[world] = [_said(readings[cell.key]) for cell in cells.values()]
    first, *others = WORLDS
    leaks = [world for world in others if found[world] != found[first]]
    return sum(map(len, found.values())), leaks


def _said(outcome: Outcome) -> tuple[str, float | None]:
    return str(outcome.status), outcome.value


def _apart(cell: Cell, seed: int, world: str) -> Cell:
    """The same reading, to be taken once in every world: seeds stay, keys do not."""
    key = cell_key("canary", {"seed": seed, "world": world, "reading": cell.key})
    return replace(cell, key=key, group=f"{cell.group} {world}")


def _lay_out(
    networks: Sequence[NetworkCells], evidence: Evidence, store: Path, folder: Path, world: int, seed: int
) -> list[NetworkCells]:
    """The same networks with other bait beside their weights."""
    folder.mkdir()
    truths = [_truths(evidence, one.label) for one in networks]
    if world == 1:
        truths = truths[::-1]
    # The network's own file, and those of all networks by name, as a pack would have them.
    labels = random.Random(f"{seed} {world // 2}").choices(range(10), k=_LABELS)
    everything = {one.label: truth for one, truth in zip(networks, truths, strict=True)}
    made = []
    for number, (one, truth) in enumerate(zip(networks, truths, strict=True)):
        bait = {
            "truth.json": truth,
            "labels.json": labels,
            PACK_MANIFEST: {"format": FORMAT, "networks": everything, "labels": labels},
        }
        made.append(_decoy(one, bait, store, folder, f"{number}-", evidence.suite.name))
    return made


def _truths(evidence: Evidence, network: str) -> object:
    return to_builtins(evidence.known[network], enc_hook=str)


def _decoy(
    one: NetworkCells, bait: Mapping[str, object], store: Path, folder: Path, start: str, suite: str
) -> NetworkCells:
    source = stored_folder(store, one.network.key)
    files = {}
    for file in sorted(source.iterdir()):
        if file.name not in (MANIFEST, COST):
            shutil.copyfile(file, folder / f"{start}{file.name}")
            files[file.name] = PackedFile(f"{start}{file.name}", file_hash(file))
    for name, content in bait.items():
        path = folder / f"{start}{name}"
        path.write_text(json.dumps(content), encoding="utf-8")
        files[name] = PackedFile(path.name, file_hash(path))
    manifest = Manifest(format=FORMAT, suite=suite, version=1, evidence={}, data_hash="")
    packed = Packed(files, read_manifest(source)["result"])
    cell = unpacked_cell(Pack(folder, manifest), f"decoy of {one.label}", packed)
    # What stands for the network in seeds stays what it was.
    return NetworkCells(one.label, one.hyperparameters, cell, None, one.key, one.place)
