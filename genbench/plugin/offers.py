"""What plugins offer beside measures: data sets, backbones, degradations, suites and executors.

Small frozen records, free of torch so that listings stay fast: what costs is behind the functions they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.data.images import ImageData
    from genbench.engine.cells import Limits
    from genbench.engine.executors import CellExecutor
    from genbench.zoo.loaded import LoadedBackbone

__all__ = [
    "Availability",
    "Backbone",
    "BackboneRequest",
    "DataRequest",
    "Dataset",
    "Degradation",
    "DegradationTask",
    "Dial",
    "Executor",
    "ExecutorRequest",
    "SuiteFile",
]


@dataclass(frozen=True)
class Availability:
    """Whether something can be used on this machine now, and if not, what to do."""

    ready: bool
    detail: str
    """Where it was found, or one sentence that says what to fetch and where to put it."""


@dataclass(frozen=True)
class Dataset:
    """Images with named classes, split into training and held-out parts."""

    name: str
    """What a suite writes; a trailing colon ("folder:") takes an argument."""
    summary: str
    classes: int | None
    """Number of classes; None where only the files can tell."""
    image_size: tuple[int, int, int] | None
    """Channels, height, width; None where it varies."""
    source: str
    """Where the images come from."""
    load: Callable[[DataRequest], ImageData] = field(repr=False)
    available: Callable[[DataRequest], Availability] = field(repr=False)
    """Looks, without importing torch or reading images."""
    version: str = "1"
    """Raised when the same name would give other images; part of every key."""


@dataclass(frozen=True)
class DataRequest:
    """What a data set's loader is told."""

    argument: str = ""
    """What followed the colon of the name, as DIR in "folder:DIR"."""
    root: Path | None = None
    """The folder to look in; None means the loader's own default."""
    download: bool = False
    """Whether the loader may fetch from the network."""
    seed: int | None = 0
    """For loaders that draw classes or images; None asks for all classes in the data set's own order."""


@dataclass(frozen=True)
class Backbone:
    """A pretrained network whose features a linear head can use."""

    name: str
    """"family:size", for example "clip:RN50"; a trailing colon ("timm:") takes an argument."""
    family: str
    """Backbones of one family form one cube."""
    summary: str
    weight_count: int | None
    """Weights of the image tower; None where only the library can tell."""
    feature_width: int | None
    image_size: int | None
    """Side of the square input in pixels."""
    source: str
    load: Callable[[BackboneRequest], LoadedBackbone] = field(repr=False)
    available: Callable[[BackboneRequest], Availability] = field(repr=False)
    """Looks, without importing torch, for the weights on this machine."""
    version: str = "1"


@dataclass(frozen=True)
class BackboneRequest:
    """What a backbone's loader is told."""

    argument: str = ""
    """What followed the colon of the name, as NAME in "timm:NAME"."""
    weights: Path | None = None
    """A folder with weight files to use before anything else."""
    download: bool = False
    """Whether the loader may fetch weights from the network."""


@dataclass(frozen=True)
class Degradation:
    """A way to degrade images, as strongly as a target mean SSIM asks for."""

    name: str
    summary: str
    fit: Callable[[DegradationTask], Sequence[Dial]] = field(repr=False)
    """One dial or several, weakest first; an SSIM level is met with the first that reaches it."""
    version: str = "1"
    """Raised when the same task would give other images; part of every key."""


@dataclass(frozen=True)
class DegradationTask:
    """What a degradation may learn from: training images only, never the ones that it will degrade."""

    images: Tensor = field(repr=False)
    """(n, channels, height, width) uint8, on the device that images will be degraded on."""
    labels: Tensor = field(repr=False)
    """(n,) int64, there too."""
    seed: int = 0
    """All randomness must come from it: the same task gives the same dials, bit for bit."""


@dataclass(frozen=True)
class Dial:
    """A degradation with one setting, its strength."""

    name: str
    turn: Callable[[Tensor, float, Tensor], Tensor] = field(repr=False)
    """(images, strength, rows) to degraded images of the same shape.

    Images are (n, channels, height, width) float32 in [0, 1], before and after, on the device of the task's.
    Strength 0 leaves them as they are, and their mean SSIM falls steadily as it rises to 1. Rows are the (n,)
    int64 numbers of these images in their set, on the CPU: randomness must be a function of them, so that
    batches do not matter.
    """
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """What was fitted, such as the weights of a network, for the record; may be empty."""


@dataclass(frozen=True)
class SuiteFile:
    """A suite as a TOML file."""

    name: str
    """What `--suite` takes; the file's own `name` field says the same."""
    path: Path
    """Looked at when the suite is asked for; put it beside the plugin's module and into its package data."""


@dataclass(frozen=True)
class Executor:
    """A way to run cells of work."""

    name: str
    """What `--executor` takes."""
    summary: str
    create: Callable[[ExecutorRequest], CellExecutor] = field(repr=False)
    """What runs cells, as `LocalExecutor` does."""
    elsewhere: bool = False
    """Whether cells run on other machines: the cores, the memory and the devices of this one say nothing."""


@dataclass(frozen=True)
class ExecutorRequest:
    """What an executor is told when it is made."""

    jobs: int | None
    """Trips at once; None is as many as there is room for."""
    limits: Limits
    """Of one cell: the time of a reading, memory, device and threads."""
    scratch: Path
    """A folder for temporary files, which goes when the run ends."""
    address: str = ""
    """Of a cluster, as `--address` says it."""
    memory: int = 0
    """Bytes that the largest cell is expected to take; 0 if nothing is known."""
