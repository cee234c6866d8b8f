"""Turns a testbed suite into cells. Imports no torch: `genbench plan` and resuming stay instant.

    images ─┬─> noise ──────────────┐
            └─> adapted ─> features ┴─> evidence ─> cube ─> tradeoff
                   └─> readings

Of networks that are one of several adaptations of a backbone, features are not stored: their evidence is one
cell. With an evidence pack, networks and cubes come out of the pack and everything before them falls away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genbench.engine.cells import Cell, NetworkCells, Step, make_cell
from genbench.keys import derive_seed, file_hash
from genbench.packs.pack import Pack, unpacked_cell
from genbench.plugin.offers import Availability, BackboneRequest, DataRequest
from genbench.plugin.registry import load_registry
from genbench.suites.plan import EvidencePlan
from genbench.testbed.cube_plan import cube_cell
from genbench.testbed.manifest import TestbedManifest
from genbench.testbed.step_types import (
    AdaptInputs,
    FeatureInputs,
    ImageInputs,
    JudgeInputs,
    NetworkJudgeInputs,
    NoiseInputs,
    TradeOffInputs,
)
from genbench.testbed.suite import TestbedNetwork, TestbedSuite

__all__ = ["Family", "TestbedPlan", "missing_parts", "plan_testbed"]

IMAGES = Step("images", "genbench.testbed.steps:images", "choose images", at_home=True)
NOISE = Step("noise", "genbench.testbed.steps:degraded_images", "degrade images")
ADAPTED = Step("adapted", "genbench.testbed.steps:adapted_network", "adapt backbone")
FEATURES = Step("features", "genbench.testbed.steps:features", "extract features", autocasts=True)
JUDGED = Step("testbed_evidence", "genbench.testbed.steps:judge_backbone", "fit heads, judge")
NETWORK_JUDGED = Step(
    "network_evidence", "genbench.testbed.steps:judge_network", "features, heads, judge", autocasts=True
)
TRADE_OFF = Step("tradeoff", "genbench.testbed.cube_steps:trade_off_point", "trade-off point", seconds=2.0)

_VERSION = 1
"""Code version of the steps in `genbench.testbed`; raise it when one would give other bits."""
_HASHED = 64 * 2**20
"""Files up to this size are told apart by content, larger ones by size and time of change."""


@dataclass(frozen=True)
class Family:
    """The cube of one family and its trade-off point."""

    name: str
    backbones: list[str]
    cube: Cell
    tradeoff: Cell


@dataclass(frozen=True, kw_only=True)
class TestbedPlan(EvidencePlan):
    """Measures see the training images of the seen classes alone."""

    __test__ = False  # not a test, whatever pytest makes of its name

    families: dict[str, Family]
    steps: list[Cell]
    """What lies between images and cubes; empty with a pack."""
    loader: str = "genbench.testbed.steps:load_subject"

    def cells(self) -> list[Cell]:
        """Parents before children."""
        ends = [cell for family in self.families.values() for cell in (family.cube, family.tradeoff)]
        networks = [subject.network for subject in self.networks]
        return list({cell.key: cell for cell in [self.training_data, *networks, *self.steps, *ends]}.values())

    def with_all_kept(self) -> TestbedPlan:
        """The same plan, with the networks in the store at its end, as a pack needs them."""
        kept = [replace(one, network=replace(one.network, on_demand=False)) for one in self.networks]
        return replace(self, networks=kept)


def plan_testbed(suite: TestbedSuite, pack: Pack | None = None) -> TestbedPlan:
    """The cells of `suite`; everything that determines a result is in its key."""
    images = _image_cells(suite)
    if pack is not None:
        return _from_pack(suite, pack, images["seen"])
    networks = {one.name: _network(suite, one, images["seen"]) for one in suite.members}
    noise = make_cell(
        NOISE,
        f"degrade images by {suite.testbed.degradation}",
        NoiseInputs(
            step=_VERSION,
            degradation=suite.testbed.degradation,
            version=load_registry().get("degradations", suite.testbed.degradation).item.version,
            levels=suite.testbed.ssim,
            seed=derive_seed("noise", suite.data.seed),
        ),
        images,
        on_demand=True,
    )
    steps = [*images.values(), noise]
    evidence = {}
    for one in suite.members:
        features, judged = _evidence(suite, one, networks[one.name], noise, images)
        steps += [*features, judged]
        evidence[one.name] = judged
    families = {}
    for family, members in suite.families().items():
        judged_members = {one.name: evidence[one.name] for one in suite.members if one.backbone in members}
        parents = {**judged_members, "heldout": images["heldout"], "noise": noise}
        cube = cube_cell(suite, family, members, parents)
        families[family] = Family(family, members, cube, _trade_off(suite, family, members, cube))
    return TestbedPlan(
        training_data=images["seen"],
        networks=[_subject(one, networks[one.name]) for one in suite.members],
        families=families,
        steps=steps,
        missing=tuple(missing_parts(suite)),
    )


def missing_parts(suite: TestbedSuite) -> Iterator[str]:
    """Data and weights that are not on this machine, one sentence each."""
    entry, argument = load_registry().resolve("datasets", suite.data.dataset)
    found = entry.item.available(DataRequest(argument=argument, seed=suite.data.seed))
    if not found.ready:
        yield f"data set {suite.data.dataset}: {found.detail}"
    for name in suite.backbones:
        entry, argument = load_registry().resolve("backbones", name)
        found = entry.item.available(BackboneRequest(argument=argument))
        if not found.ready:
            yield f"backbone {name}: {found.detail}"


def _subject(one: TestbedNetwork, network: Cell) -> NetworkCells:
    entry, _ = load_registry().resolve("backbones", one.backbone)
    about = {"family": entry.item.family, "backbone": one.backbone}
    if one.adaptation is not None:
        about |= {"adaptation": one.adaptation.name, **one.adaptation.settings()}
    return NetworkCells(one.name, about, network)


def _image_cells(suite: TestbedSuite) -> dict[str, Cell]:
    data = suite.data
    entry, argument = load_registry().resolve("datasets", data.dataset)
    content = _fingerprint(entry.item.available(DataRequest(argument=argument, seed=data.seed)))
    cells = {}
    for part, what in (
        ("seen", "training images, seen classes"),
        ("unseen", "training images, unseen classes"),
        ("heldout", "held-out images"),
    ):
        per_class = data.heldout_per_class if part == "heldout" else data.train_per_class
        augmented = part != "seen" and data.augment_unseen
        inputs = ImageInputs(
            step=_VERSION,
            dataset=data.dataset,
            dataset_version=entry.item.version,
            content=content,
            seen=data.seen,
            unseen=data.unseen,
            seed=data.seed,
            image_side=data.image_side,
            quick=suite.quick,
            part=part,
            per_class=per_class,
            augment_unseen=augmented,
        )
        cells[part] = make_cell(IMAGES, f"{what} of {data.dataset}", inputs, on_demand=True)
    return cells


def _network(suite: TestbedSuite, one: TestbedNetwork, training: Cell) -> Cell:
    entry, argument = load_registry().resolve("backbones", one.backbone)
    available = entry.item.available(BackboneRequest(argument=argument))
    settings = dict(suite.adapted(one).given())
    seed = settings.pop("seed")
    # Adaptations are runs of their own, which differ in more than their settings.
    own = [seed] if one.adaptation is None else [seed, one.adaptation.name]
    if settings.get("train_share", 1) < 1 or settings.get("label_noise", 0) > 0:
        settings["subset_seed"] = derive_seed("training set", seed)
    return make_cell(
        ADAPTED,
        f"adapt {one.name}",
        AdaptInputs(
            step=_VERSION,
            backbone=one.backbone,
            backbone_version=entry.item.version,
            content=_fingerprint(available),
            classes=suite.data.seen,
            **settings,
            seed=derive_seed("order", *own),
            head_seed=derive_seed("head", *own),
        ),
        {"training": training},
        on_demand=True,
    )


def _evidence(
    suite: TestbedSuite, one: TestbedNetwork, network: Cell, noise: Cell, images: Mapping[str, Cell]
) -> tuple[list[Cell], Cell]:
    """Cells with features of one adapted backbone, if they are stored, and its evidence."""
    training = {part: images[part] for part in ("seen", "unseen")}
    table = suite.testbed
    asked: dict[str, Any] = {
        "step": _VERSION,
        "backbone": one.backbone,
        "seen": suite.data.seen,
        "levels": table.ssim,
        "zero_shot": table.zero_shot,
        "unseen_head": table.unseen_head,
        "prototype_images": table.prototype_images,
        "penalty": table.penalty,
        "kappa_threshold": table.kappa_threshold,
    }
    label = f"heads and evidence of {one.name}"
    read = {"network": network, "heldout": images["heldout"], **training}
    if one.adaptation is not None:
        whole = NetworkJudgeInputs(**asked)
        return [], make_cell(NETWORK_JUDGED, label, whole, {**read, "noise": noise}, on_demand=True)
    parents = {
        "training_features": make_cell(
            FEATURES,
            f"training features of {one.name}",
            FeatureInputs(step=_VERSION, backbone=one.backbone, level=None),
            {"network": network, **training},
            on_demand=True,
        )
    }
    for level in table.ssim:
        parents[f"features {level:g}"] = make_cell(
            FEATURES,
            f"features of {one.name} at SSIM {level:g}",
            FeatureInputs(step=_VERSION, backbone=one.backbone, level=level),
            {"network": network, "noise": noise},
            on_demand=True,
        )
    judged = make_cell(JUDGED, label, JudgeInputs(**asked), {**parents, **read}, on_demand=True)
    return list(parents.values()), judged


def _trade_off(suite: TestbedSuite, family: str, backbones: list[str], cube: Cell) -> Cell:
    return make_cell(
        TRADE_OFF,
        f"trade-off point of {family}",
        TradeOffInputs(
            step=_VERSION,
            kappa=suite.testbed.kappa,
            scales="normalised",
            weights=(1.0, 1.0, 1.0),
            backbones=backbones,
            adaptations=suite.adaptation_names,
        ),
        {"cube": cube},
    )


def _from_pack(suite: TestbedSuite, pack: Pack, training: Cell) -> TestbedPlan:
    shipped = pack.read_as(TestbedManifest)
    subjects = [
        _subject(one, unpacked_cell(pack, one.name, shipped.networks[one.name], on_demand=True))
        for one in suite.members
    ]
    families = {}
    for family, members in suite.families().items():
        cube = unpacked_cell(pack, family, shipped.cubes[family])
        families[family] = Family(family, members, cube, _trade_off(suite, family, members, cube))
    return TestbedPlan(training_data=training, networks=subjects, families=families, steps=[], pack=pack)


def _fingerprint(available: Availability) -> str:
    """What tells the content found on this machine from another; "" where the place is not a path."""
    if not available.ready:
        return ""
    path = Path(available.detail)
    try:
        if path.is_file():
            return _file_mark(path)
        if path.is_dir():
            marks = [f"{p.relative_to(path)} {_file_mark(p)}" for p in sorted(path.rglob("*")) if p.is_file()]
            return hashlib.sha256("\n".join(marks).encode()).hexdigest()
    except OSError:
        pass
    return ""


def _file_mark(path: Path) -> str:
    found = path.stat()
    return file_hash(path) if found.st_size <= _HASHED else f"{found.st_size} {found.st_mtime_ns}"
