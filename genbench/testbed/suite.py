"""Suites of the practical testbed (004): pretrained backbones over zero-shot share × SSIM × model size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from genbench.errors import UserError
from genbench.plugin.registry import load_registry, unknown_name
from genbench.suites import fields
from genbench.suites.suite import Suite, SuiteFields

__all__ = [
    "AdaptTable",
    "AdaptationTable",
    "DataTable",
    "TestbedNetwork",
    "TestbedSuite",
    "TestbedTable",
    "read_testbed",
]

_level = Meta(gt=0, le=1)
Level = Annotated[int, _level] | Annotated[float, _level]
_share = Meta(gt=0, le=1, description="a share above 0 and at most 1")
Share = Annotated[int, _share] | Annotated[float, _share]
_noise = Meta(ge=0, lt=1, description="a share of at least 0 and below 1")
Noise = Annotated[int, _noise] | Annotated[float, _noise]
Augmentation = Literal["none", "shift"]


class DataTable(fields.Table, frozen=True):
    """Classes and images."""

    dataset: fields.Text
    seen: Annotated[int, fields.integer(2)]
    unseen: fields.Whole
    seed: fields.Whole
    augment_unseen: fields.Flag
    train_per_class: fields.Count | None = None
    heldout_per_class: fields.Count | None = None
    image_side: Annotated[int, fields.integer(11)] | None = None


class TestbedTable(fields.Table, frozen=True):
    """The axes of the cubes, and how their cells are judged."""

    __test__ = False  # not a test, whatever pytest makes of its name

    backbones: Annotated[list[fields.Text], fields.distinct("the name of a backbone")]
    zero_shot: Annotated[list[fields.Whole], fields.distinct("a number of unseen classes")]
    ssim: Annotated[list[Level], fields.distinct("an SSIM above 0 and at most 1")]
    degradation: fields.Text
    unseen_head: Literal["probe", "text", "prototype"]
    penalty: fields.Positive
    kappa: Literal["conflict", "cohen"]
    kappa_threshold: Annotated[float, Meta(gt=0, lt=1, description="a probability between 0 and 1")]
    prototype_images: fields.Count = 5
    adaptations: (
        Annotated[list[fields.Text], fields.distinct("the name of one of [[adaptations]]")] | None
    ) = None
    """Those of [[adaptations]] that are made; all of them unless given."""


class AdaptTable(fields.Table, frozen=True):
    """How backbones are adapted to the seen classes."""

    method: Literal["finetune", "frozen"]
    epochs: fields.Count
    batch_size: Annotated[int, fields.integer(2)]
    learning_rate: fields.Positive
    head_learning_rate: fields.Positive
    weight_decay: fields.NotNegative
    stop_loss: fields.NotNegative
    patience: fields.Count
    seed: fields.Whole
    stop: Literal["training", "evaluation"] | None = None
    """Which loss `stop_loss` is compared with: the mean of an epoch's batches, or that of all training images
    in evaluation mode, which is then met to a hundredth."""
    stop_losses: (
        Annotated[dict[str, fields.Positive], Meta(description="a table of backbones with positive numbers")]
        | None
    ) = None
    """Backbone to its own `stop_loss`: what a large one reaches, a small one may not."""
    train_share: Share | None = None
    label_noise: Noise | None = None
    augmentation: Augmentation | None = None


class AdaptationTable(fields.Table, frozen=True):
    """One of [[adaptations]], in which every backbone is adapted: how it differs from [adapt]."""

    name: Annotated[
        str, Meta(pattern="^[A-Za-z0-9_.-]+$", description="a text of letters, digits, points and hyphens")
    ]
    learning_rate_factor: fields.Positive | None = None
    """Both learning rates of [adapt] are multiplied with it."""
    batch_size: Annotated[int, fields.integer(2)] | None = None
    weight_decay: fields.NotNegative | None = None
    train_share: Share | None = None
    """Of the seen classes' training images, alike in every class; a smaller share is a part of a larger."""
    label_noise: Noise | None = None
    """Share of the training labels that are replaced by another class."""
    augmentation: Augmentation | None = None

    def settings(self) -> fields.Toml:
        """What it says, but for its name."""
        return {key: value for key, value in self.given().items() if key != "name"}

    def changed(self, adapt: AdaptTable) -> AdaptTable:
        """The table [adapt] as this adaptation has it."""
        own = dict(self.settings())
        factor = own.pop("learning_rate_factor", None)
        if factor is not None:
            own["learning_rate"] = adapt.learning_rate * factor
            own["head_learning_rate"] = adapt.head_learning_rate * factor
        return replace(adapt, **own)


@dataclass(frozen=True)
class TestbedNetwork:
    """One network of a testbed: a backbone and how it is adapted."""

    __test__ = False  # not a test, whatever pytest makes of its name

    backbone: str
    adaptation: AdaptationTable | None

    @property
    def name(self) -> str:
        """The backbone's, and after a slash the adaptation's where there are several."""
        return self.backbone if self.adaptation is None else f"{self.backbone}/{self.adaptation.name}"


@dataclass(frozen=True, kw_only=True)
class TestbedSuite(Suite):
    """Backbones adapted to the seen classes and tested on more classes and on worse images."""

    __test__ = False  # not a test, whatever pytest makes of its name
    kind = "testbed"

    data: DataTable
    testbed: TestbedTable
    adapt: AdaptTable
    adaptations: tuple[AdaptationTable, ...] = ()
    """Without one, every backbone is adapted once, as [adapt] says."""

    @property
    def backbones(self) -> list[str]:
        """Names of the backbones."""
        return list(self.testbed.backbones)

    @property
    def adaptation_names(self) -> list[str]:
        """Names of the adaptations; none where every backbone is adapted once."""
        return [one.name for one in self.adaptations]

    @property
    def members(self) -> list[TestbedNetwork]:
        """All networks, those of one backbone together."""
        return [
            TestbedNetwork(name, adaptation)
            for name in self.backbones
            for adaptation in self.adaptations or (None,)
        ]

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.members)

    def adapted(self, network: TestbedNetwork) -> AdaptTable:
        """How one of its networks is adapted."""
        adapt = self.adapt if network.adaptation is None else network.adaptation.changed(self.adapt)
        stop_loss = (adapt.stop_losses or {}).get(network.backbone, adapt.stop_loss)
        return replace(adapt, stop_loss=stop_loss, stop_losses=None)

    def settings(self, network: TestbedNetwork) -> fields.Toml:
        """How one of its networks is adapted, as JSON values; of adaptations, also what they leave alone."""
        unsaid = {"train_share": 1.0, "label_noise": 0.0, "augmentation": "none"}
        return {**(unsaid if self.adaptations else {}), **self.adapted(network).given()}

    def families(self) -> dict[str, list[str]]:
        """Backbones by family; each family is a cube."""
        families: dict[str, list[str]] = {}
        for name in self.backbones:
            entry, _ = load_registry().resolve("backbones", name)
            families.setdefault(entry.item.family, []).append(name)
        return families

    def content(self) -> fields.Toml:
        """Everything that determines networks and cubes.

        Which kappa the six statistics summarise is not in it: cubes hold both, per class. The version of the
        degradation is, so that no pack serves that was made with another; the first goes without saying.
        """
        testbed = {
            key: value for key, value in self.testbed.given().items() if key not in ("kappa", "adaptations")
        }
        version = load_registry().get("degradations", self.testbed.degradation).item.version
        if version != "1":
            testbed["degradation_version"] = version
        found: dict[str, Any] = {
            "data": self.data.given(), "testbed": testbed, "adapt": self.adapt.given()
        }  # fmt: skip
        if self.adaptations:
            found["adaptations"] = [one.given() for one in self.adaptations]
        return found


def read_testbed(path: Path, content: fields.Toml, common: SuiteFields) -> TestbedSuite:
    """Check the tables [data], [testbed], [adapt] and [[adaptations]]."""
    data, adapt = DataTable.read(path, content, "data"), AdaptTable.read(path, content, "adapt")
    testbed = TestbedTable.read(path, content, "testbed")
    if (most := max(testbed.zero_shot)) > data.unseen:
        raise UserError(
            f"{path}: testbed.zero_shot asks for {most} unseen classes, but data.unseen = {data.unseen}"
        )
    # Where the two slices of the practical sign-error lie.
    if 0 not in testbed.zero_shot or 1.0 not in testbed.ssim:
        raise UserError(
            f"{path}: testbed.zero_shot must contain 0 and testbed.ssim must contain 1.0, the clean level"
        )
    load_registry().get("degradations", testbed.degradation)
    ordered = replace(testbed, zero_shot=sorted(testbed.zero_shot), ssim=sorted(map(float, testbed.ssim)))
    if adapt.stop == "evaluation" and adapt.stop_loss == 0:
        raise UserError(f"{path}: adapt.stop = 'evaluation' needs an adapt.stop_loss above 0 to stop at")
    for name in adapt.stop_losses or ():
        load_registry().resolve("backbones", name)
    adaptations = _chosen_adaptations(path, content, testbed)
    suite = TestbedSuite(**common, data=data, testbed=ordered, adapt=adapt, adaptations=adaptations)
    for family in suite.families():
        if testbed.unseen_head == "text" and "clip" not in family:
            raise UserError(
                f"{path}: testbed.unseen_head = 'text' needs a text tower, which {family} does not have; "
                "use 'probe' or 'prototype', or CLIP backbones"
            )
    return suite


def _chosen_adaptations(
    path: Path, content: fields.Toml, testbed: TestbedTable
) -> tuple[AdaptationTable, ...]:
    """Of [[adaptations]] those that [testbed] asks for."""
    found = content.get("adaptations", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UserError(f"{path}: adaptations must be tables with names, each below a line [[adaptations]]")
    tables = []
    for number, one in enumerate(found, start=1):
        where = f"adaptations.{one.get('name', number)}"
        tables.append(AdaptationTable.read(path, {where: one}, where))
    names = [one.name for one in tables]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: two of [[adaptations]] are called {repeated[0]!r}; give each its own name")
    if testbed.adaptations is None:
        return tuple(tables)
    for name in testbed.adaptations:
        if name not in names:
            raise UserError(
                f"{path}: {unknown_name('adaptation', name, names, f'[[adaptations]] of {path.name}')}"
            )
    return tuple(one for one in tables if one.name in testbed.adaptations)
