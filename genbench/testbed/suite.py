"""Suites of the practical testbed (004): pretrained backbones over zero-shot share × SSIM × model size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from genbench.errors import UserError
from genbench.plugin.registry import load_registry
from genbench.suites import fields
from genbench.suites.suite import Suite, SuiteFields

__all__ = ["AdaptTable", "DataTable", "TestbedSuite", "TestbedTable", "read_testbed"]

_level = Meta(gt=0, le=1)
Level = Annotated[int, _level] | Annotated[float, _level]


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


@dataclass(frozen=True, kw_only=True)
class TestbedSuite(Suite):
    """Backbones adapted to the seen classes and tested on more classes and on worse images."""

    __test__ = False  # not a test, whatever pytest makes of its name
    kind = "testbed"

    data: DataTable
    testbed: TestbedTable
    adapt: AdaptTable

    @property
    def backbones(self) -> list[str]:
        """Names of the backbones."""
        return list(self.testbed.backbones)

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.backbones)

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
        testbed = {key: value for key, value in self.testbed.given().items() if key != "kappa"}
        testbed["degradation"] = self.testbed.degradation.partition("@")[0]
        version = load_registry().get("degradations", self.testbed.degradation).item.version
        if version != "1":
            testbed["degradation_version"] = version
        return {"data": self.data.given(), "testbed": testbed, "adapt": self.adapt.given()}


def read_testbed(path: Path, content: fields.Toml, common: SuiteFields) -> TestbedSuite:
    """Check the tables [data], [testbed] and [adapt]."""
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
    suite = TestbedSuite(**common, data=data, testbed=ordered, adapt=adapt)
    for family in suite.families():
        if testbed.unseen_head == "text" and "clip" not in family:
            raise UserError(
                f"{path}: testbed.unseen_head = 'text' needs a text tower, which {family} does not have; "
                "use 'probe' or 'prototype', or CLIP backbones"
            )
    return suite
