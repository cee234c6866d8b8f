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
- executors: an `Executor` makes a `CellExecutor`, which takes trips of `Assignment`s (each with a `Cell` and
  that with its `Step`) into `Slot`s under `Limits` and gives `Outcome`s, each with a `Status` and a `Cost`;
  `LocalExecutor` is one to build on.

They are imported on first use. `ImageData` and its splits and `LoadedBackbone` import torch: a plugin that
imports them inside the function that loads keeps the listing commands fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genbench._lazy import names_from

if TYPE_CHECKING:
    from genbench.data.images import FileImages, ImageData, ImageSplit, TensorImages
    from genbench.engine.cells import Assignment, Cell, Cost, Outcome, Status, Step
    from genbench.engine.guard import Limits
    from genbench.engine.local import LocalExecutor, Slot
    from genbench.engine.scheduler import CellExecutor
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
    "Estimate",
    "Executor",
    "FileImages",
    "ImageData",
    "ImageSplit",
    "Limits",
    "LoadedBackbone",
    "LocalExecutor",
    "Measure",
    "MeasureInfo",
    "Outcome",
    "Slot",
    "Status",
    "Step",
    "SuiteFile",
    "SuiteKind",
    "TensorImages",
    "hookimpl",
    "measure",
]

_NAMES = {
    "genbench.data.images": ("FileImages", "ImageData", "ImageSplit", "TensorImages"),
    "genbench.engine.cells": ("Assignment", "Cell", "Cost", "Outcome", "Status", "Step"),
    "genbench.engine.guard": ("Limits",),
    "genbench.engine.local": ("LocalExecutor", "Slot"),
    "genbench.engine.scheduler": ("CellExecutor",),
    "genbench.plugin.contract": ("Estimate", "Measure", "MeasureInfo", "measure"),
    "genbench.plugin.hookspecs": ("hookimpl",),
    "genbench.plugin.offers": (
        "Availability", "Backbone", "BackboneRequest", "DataRequest", "Dataset", "Degradation",
        "DegradationTask", "Dial", "Executor", "SuiteFile",
    ),
    "genbench.plugin.suite_kind": ("SuiteKind",),
    "genbench.zoo.loaded": ("LoadedBackbone",),
}  # fmt: skip

__getattr__ = names_from({name: home for home, names in _NAMES.items() for name in names}, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
