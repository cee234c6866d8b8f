"""What plugins hand to genbench, the hooks they do it through, and the registry of all they offer.

The public names, all that an author of a plugin needs; CONTRIBUTING.md has an example for every hook:

- `hookimpl`: marks the functions through which a package registers what it offers.
- measures: `measure` makes a `Measure`, which returns a float or an `Estimate`; `MeasureInfo` is what is
  known about it.
- data sets: a `Dataset` is asked with a `DataRequest` for its `Availability` and for `ImageData`, whose
  splits are `TensorImages`, `FileImages` or any other `ImageSplit`.
- backbones: a `Backbone` is asked with a `BackboneRequest` for its `Availability` and a `LoadedBackbone`.
- degradations: a `Degradation` fits `Dial`s to a `DegradationTask`.
- suites: a `SuiteFile` is a TOML file with a name, a `SuiteKind` what such files may be about; the seam that
  a kind implements is `genbench.suites.kind.Kind`.
- executors: an `Executor` makes of an `ExecutorRequest` with its `Limits` a `CellExecutor`. It takes a `Trip`
  of `Assignment`s (each with a `Cell` and that with its `Step`) into a `Slot` and gives for each an `Ended`
  with its `Outcome` (`Status`, `Cost`, a `Fixable` where a person can act); a `Note` is for people.
  `LocalExecutor` is one to build on.

They are imported on first use. `ImageData` and its splits and `LoadedBackbone` import torch: a plugin that
imports them inside the function that loads keeps the listing commands fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import names_from

if TYPE_CHECKING:
    from genbench.data.images import FileImages, ImageData, ImageSplit, TensorImages
    from genbench.engine.cells import Assignment, Cell, Cost, Fixable, Limits, Outcome, Status, Step
    from genbench.engine.executors import CellExecutor, Ended, Note, Slot, Trip
    from genbench.engine.local import LocalExecutor
    from genbench.plugin.contract import Estimate, Measure, MeasureInfo, measure
    from genbench.plugin.hookspecs import hookimpl
    from genbench.plugin.offers import (
        Availability,
        Backbone,
        BackboneRequest,
        DataRequest,
        Dataset,
        Degradation,
        DegradationTask,
        Dial,
        Executor,
        ExecutorRequest,
        SuiteFile,
    )
    from genbench.plugin.suite_kind import SuiteKind
    from genbench.zoo.loaded import LoadedBackbone

__all__ = [
    "Assignment",
    "Availability",
    "Backbone",
    "BackboneRequest",
    "Cell",
    "CellExecutor",
    "Cost",
    "DataRequest",
    "Dataset",
    "Degradation",
    "DegradationTask",
    "Dial",
    "Ended",
    "Estimate",
    "Executor",
    "ExecutorRequest",
    "FileImages",
    "Fixable",
    "ImageData",
    "ImageSplit",
    "Limits",
    "LoadedBackbone",
    "LocalExecutor",
    "Measure",
    "MeasureInfo",
    "Note",
    "Outcome",
    "Slot",
    "Status",
    "Step",
    "SuiteFile",
    "SuiteKind",
    "TensorImages",
    "Trip",
    "hookimpl",
    "measure",
]

_NAMES = {
    "genbench.data.images": ("FileImages", "ImageData", "ImageSplit", "TensorImages"),
    "genbench.engine.cells": (
        "Assignment", "Cell", "Cost", "Fixable", "Limits", "Outcome", "Status", "Step",
    ),
    "genbench.engine.executors": ("CellExecutor", "Ended", "Note", "Slot", "Trip"),
    "genbench.engine.local": ("LocalExecutor",),
    "genbench.plugin.contract": ("Estimate", "Measure", "MeasureInfo", "measure"),
    "genbench.plugin.hookspecs": ("hookimpl",),
    "genbench.plugin.offers": (
        "Availability", "Backbone", "BackboneRequest", "DataRequest", "Dataset", "Degradation",
        "DegradationTask", "Dial", "Executor", "ExecutorRequest", "SuiteFile",
    ),
    "genbench.plugin.suite_kind": ("SuiteKind",),
    "genbench.zoo.loaded": ("LoadedBackbone",),
}  # fmt: skip

__getattr__ = names_from({name: home for home, names in _NAMES.items() for name in names}, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
