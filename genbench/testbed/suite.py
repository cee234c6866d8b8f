"""Suites of the practical testbed (004): pretrained backbones over zero-shot share × SSIM × model size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genbench.errors import UserError
from genbench.plugin.registry import load_registry
from genbench.suites.fields import (
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    TEXT,
    check_table,
    choice,
    distinct,
    integer,
    known_keys,
    number,
    optional,
    table,
)
from genbench.suites.suite import Suite

__all__ = ["TestbedSuite", "read_testbed"]

_FRACTION = number("a number from 0 to 1", lambda v: 0 < v <= 1)
_DATA = {
    "dataset": TEXT,
    "seen": integer(2),
    "unseen": integer(0),
    "seed": integer(0),
    "augment_unseen": FLAG,
    "train_per_class": optional(integer(1)),
    "heldout_per_class": optional(integer(1)),
    "image_side": optional(integer(11)),
}
_TESTBED = {
    "backbones": distinct(TEXT, "the name of a backbone"),
    "zero_shot": distinct(integer(0), "a number of unseen classes"),
    "ssim": distinct(_FRACTION, "an SSIM above 0 and at most 1"),
    "degradation": TEXT,
    "unseen_head": choice("probe", "text", "prototype"),
    "prototype_images": optional(integer(1)),
    "penalty": POSITIVE,
    "kappa": choice("conflict", "cohen"),
    "kappa_threshold": number("a probability between 0 and 1", lambda v: 0 < v < 1),
}
_ADAPT = {
    "method": choice("finetune", "frozen"),
    "epochs": integer(1),
    "batch_size": integer(2),
    "learning_rate": POSITIVE,
    "head_learning_rate": POSITIVE,
    "weight_decay": NOT_NEGATIVE,
    "stop_loss": NOT_NEGATIVE,
    "patience": integer(1),
    "seed": integer(0),
}
_PROTOTYPE_IMAGES = 5


@dataclass(frozen=True)
class TestbedSuite(Suite):
    """Backbones adapted to the seen classes and tested on more classes and on worse images."""

    __test__ = False  # not a test, whatever pytest makes of its name
    kind = "testbed"

    data: Mapping[str, Any] = field(default_factory=dict)
    testbed: Mapping[str, Any] = field(default_factory=dict)
    adapt: Mapping[str, Any] = field(default_factory=dict)

    @property
    def backbones(self) -> list[str]:
        """Names of the backbones."""
        return list(self.testbed["backbones"])

    @property
    def kappa(self) -> str:
        """Which kappa the six statistics summarise."""
        return str(self.testbed["kappa"])

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

    def content(self) -> dict[str, Any]:
        """Everything that determines networks and cubes.

        Which kappa the six statistics summarise is not in it: cubes hold both, per class.
        """
        testbed = {key: value for key, value in self.testbed.items() if key != "kappa"}
        return {"data": dict(self.data), "testbed": testbed, "adapt": dict(self.adapt)}


def read_testbed(path: Path, content: Mapping[str, Any], common: Mapping[str, Any]) -> TestbedSuite:
    """Check the tables [data], [testbed] and [adapt]."""
    tables = {}
    for name, fields in (("data", _DATA), ("testbed", _TESTBED), ("adapt", _ADAPT)):
        tables[name] = table(path, content, name)
        known_keys(path, name, tables[name], fields)
        check_table(path, name, tables[name], fields)
    testbed = {"prototype_images": _PROTOTYPE_IMAGES, **tables["testbed"]}
    levels, unseen = testbed["zero_shot"], tables["data"]["unseen"]
    if max(levels) > unseen:
        raise UserError(
            f"{path}: testbed.zero_shot asks for {max(levels)} unseen classes, but data.unseen = {unseen}"
        )
    # Where the two slices of the practical sign-error lie.
    if 0 not in levels or 1.0 not in testbed["ssim"]:
        raise UserError(
            f"{path}: testbed.zero_shot must contain 0 and testbed.ssim must contain 1.0, the clean level"
        )
    testbed["zero_shot"] = sorted(levels)
    testbed["ssim"] = sorted(map(float, testbed["ssim"]))
    load_registry().get("degradations", testbed["degradation"])
    suite = TestbedSuite(**common, data=tables["data"], testbed=testbed, adapt=tables["adapt"])
    for family in suite.families():
        if testbed["unseen_head"] == "text" and "clip" not in family:
            raise UserError(
                f"{path}: testbed.unseen_head = 'text' needs a text tower, which {family} does not have; "
                "use 'probe' or 'prototype', or CLIP backbones"
            )
    return suite
