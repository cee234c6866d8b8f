"""What plugins hand to genbench: small frozen records, free of torch so that listings stay fast.

A plugin returns these from the hooks in `genbench.plugin.hookspecs`. The built-ins do the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from genbench.errors import ContractError

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.data.images import ImageData
    from genbench.subject import Subject
    from genbench.zoo.loaded import LoadedBackbone

__all__ = [
    "NEEDS",
    "Availability",
    "Backbone",
    "Dataset",
    "Degradation",
    "DegradationTask",
    "Dial",
    "Estimate",
    "Executor",
    "Measure",
    "MeasureInfo",
    "SuiteFile",
    "measure",
]

NEEDS = frozenset({"weights", "initial_weights", "training_data", "gradients", "trace"})
"""What a measure may declare that it needs of a subject."""

HigherMeans = Literal["worse", "better"]
Randomness = Literal["none", "seeded"]
Cost = Literal["", "low", "medium", "high"]


class Estimate(float):
    """What a measure may return in place of a float to say more: how sure it is, or what each layer gave.

    >>> value = Estimate(2.5, standard_error=0.1, samples=20)
    >>> value + 1, value.detail()
    (3.5, {'standard_error': 0.1, 'samples': 20})
    """

    standard_error: float | None
    """Of the value, from the spread of the samples behind it."""
    samples: int | None
    layers: dict[str, float]
    """Contribution of each layer, by name."""

    def __new__(
        cls,
        value: float,
        *,
        standard_error: float | None = None,
        samples: int | None = None,
        layers: Mapping[str, float] | None = None,
    ) -> Self:
        """A float with its detail."""
        self = super().__new__(cls, value)
        self.standard_error = None if standard_error is None else float(standard_error)
        self.samples = samples
        self.layers = {name: float(number) for name, number in (layers or {}).items()}
        return self

    def detail(self) -> dict[str, Any]:
        """What is known beside the value, as JSON values; numbers that are not finite are left out."""
        found: dict[str, Any] = {}
        if self.standard_error is not None and math.isfinite(self.standard_error):
            found["standard_error"] = self.standard_error
        if self.samples is not None:
            found["samples"] = self.samples
        layers = {name: number for name, number in self.layers.items() if math.isfinite(number)}
        return {**found, "layers": layers} if layers else found


@dataclass(frozen=True)
class MeasureInfo:
    """Everything known about a measure but its function; what a record keeps of it."""

    name: str
    summary: str
    description: str = ""
    category: str = "other"
    needs: frozenset[str] = frozenset({"weights"})
    higher_means: HigherMeans = "worse"
    randomness: Randomness = "none"
    logarithm: bool = False
    cost: Cost = ""
    paper: str = ""
    version: str = "1"


@dataclass(frozen=True)
class Measure:
    """A generalization measure: a function of one subject, and what is known about it."""

    name: str
    """Unique over all plugins; lower-case letters, digits and underscores."""
    function: Callable[[Subject], float] = field(repr=False)
    """Takes a `genbench.Subject`, returns a float or `Estimate`, or raises `genbench.NotApplicable`."""
    summary: str
    """One line, shown by `genbench measures`."""
    category: str = "other"
    """The idea behind it: norm, margin, sharpness, ..."""
    needs: frozenset[str] = frozenset({"weights"})
    """A subset of `NEEDS`; a subject that lacks one makes the reading `not_applicable`."""
    higher_means: HigherMeans = "worse"
    """Whether a larger value predicts worse or better generalization."""
    randomness: Randomness = "none"
    """`seeded` if the value depends on `subject.generator`."""
    logarithm: bool = False
    """True if the value already is a logarithm (CMS then takes it as log C)."""
    cost: Cost = ""
    """What a reading takes: "low" (weights or one pass over the data), "medium" (gradients, tens of passes),
    "high" (hundreds of passes); empty where nobody said."""
    paper: str = ""
    """Where it comes from, with the equation: "001 (27)"."""
    version: str = "1"
    """Raised by the author when the value changes; part of every reading's key."""

    def __call__(self, subject: Subject) -> float:
        """Compute the measure on `subject`, in this process and without any guard."""
        return self.function(subject)

    @property
    def description(self) -> str:
        """The whole docstring: formula, reference and known limits."""
        return inspect.getdoc(self.function) or self.summary

    @property
    def info(self) -> MeasureInfo:
        """What is known about it, without the function."""
        names = [entry.name for entry in fields(MeasureInfo)]
        return MeasureInfo(**{name: getattr(self, name) for name in names})


@overload
def measure(function: Callable[[Subject], float], /) -> Measure: ...


@overload
def measure(
    *,
    name: str | None = None,
    category: str = "other",
    needs: Iterable[str] = ("weights",),
    higher_means: HigherMeans = "worse",
    randomness: Randomness = "none",
    logarithm: bool = False,
    cost: Cost = "",
    paper: str = "",
    version: str = "1",
) -> Callable[[Callable[[Subject], float]], Measure]: ...


def measure(
    function: Callable[[Subject], float] | None = None,
    /,
    *,
    name: str | None = None,
    category: str = "other",
    needs: Iterable[str] = ("weights",),
    higher_means: HigherMeans = "worse",
    randomness: Randomness = "none",
    logarithm: bool = False,
    cost: Cost = "",
    paper: str = "",
    version: str = "1",
) -> Measure | Callable[[Callable[[Subject], float]], Measure]:
    """Turn a function of a subject into a measure.

    The function's name becomes the measure's name, the first line of its docstring the summary.

    >>> @measure(category="norm", needs={"weights"})
    ... def sum_of_squares(subject):
    ...     '''Sum of squared weights.'''
    ...     return sum(w.square().sum().item() for w in subject.weights())
    >>> sum_of_squares.name, sum_of_squares.higher_means
    ('sum_of_squares', 'worse')
    """

    def decorate(function: Callable[[Subject], float]) -> Measure:
        return _validated(
            Measure(
                name=name if name is not None else getattr(function, "__name__", ""),
                function=function,
                summary=(inspect.getdoc(function) or "").strip().split("\n")[0],
                category=category,
                needs=frozenset({needs} if isinstance(needs, str) else needs),
                higher_means=higher_means,
                randomness=randomness,
                logarithm=logarithm,
                cost=cost,
                paper=paper,
                version=str(version),
            )
        )

    return decorate if function is None else decorate(function)


def _validated(candidate: Measure) -> Measure:
    name = candidate.name
    if not (name.isascii() and name.isidentifier() and name == name.lower()):
        raise ContractError(
            f"measure name {name!r} is not valid: use lower-case letters, digits and underscores, "
            "for example @genbench.measure(name='my_measure')"
        )
    if not callable(candidate.function):
        raise ContractError(f"measure {name!r} decorates {candidate.function!r}, which is not a function")
    _require_one_argument(candidate)
    if not candidate.summary:
        raise ContractError(
            f"measure {name!r} has no docstring; its first line is what `genbench measures` shows"
        )
    unknown = candidate.needs - NEEDS
    if unknown:
        raise ContractError(
            f"measure {name!r} needs {_listed(unknown)}, but a measure can need only {_listed(NEEDS)}"
        )
    if candidate.higher_means not in ("worse", "better"):
        raise ContractError(
            f"measure {name!r} says higher_means={candidate.higher_means!r}; use 'worse' or 'better'"
        )
    if candidate.randomness not in ("none", "seeded"):
        raise ContractError(
            f"measure {name!r} says randomness={candidate.randomness!r}; use 'none' or 'seeded'"
        )
    if candidate.cost not in ("", "low", "medium", "high"):
        raise ContractError(f"measure {name!r} says cost={candidate.cost!r}; use 'low', 'medium' or 'high'")
    return candidate


def _require_one_argument(candidate: Measure) -> None:
    try:
        parameters = inspect.signature(candidate.function).parameters.values()
    except (TypeError, ValueError):
        return  # a builtin without a signature; calling it will tell
    required = [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if inspect.iscoroutinefunction(candidate.function) or len(required) > 1 or not positional:
        raise ContractError(
            f"measure {candidate.name!r} must be a plain function of one argument, the subject; "
            f"its signature is {candidate.name}{inspect.signature(candidate.function)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


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
    seed: int = 0
    """For loaders that draw classes or images."""


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
    """(n, channels, height, width) uint8."""
    labels: Tensor = field(repr=False)
    """(n,) int64."""
    seed: int = 0
    """All randomness must come from it: the same task gives the same dials, bit for bit."""


@dataclass(frozen=True)
class Dial:
    """A degradation with one setting, its strength."""

    name: str
    turn: Callable[[Tensor, float, Tensor], Tensor] = field(repr=False)
    """(images, strength, rows) to degraded images of the same shape.

    Images are (n, channels, height, width) float32 in [0, 1], before and after. Strength 0 leaves them as
    they are, and their mean SSIM falls steadily as it rises to 1. Rows are the (n,) int64 numbers of these
    images in their set: randomness must be a function of them, so that batches do not matter.
    """
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """What was fitted, such as the weights of a network, for the record; may be empty."""


@dataclass(frozen=True)
class SuiteFile:
    """A suite as a TOML file."""

    name: str
    path: Path


@dataclass(frozen=True)
class Executor:
    """A way to run cells: `create(jobs, limits, scratch)` gives a `CellExecutor`."""

    name: str
    summary: str
    create: Callable[..., object] = field(repr=False)
