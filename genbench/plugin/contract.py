"""What a measure is: its function, what is known about it, and what genbench refuses.

Free of torch, so that listings stay fast. What else plugins offer is in `genbench.plugin.offers`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Self, overload

from genbench.errors import ContractError

if TYPE_CHECKING:
    from genbench.subject import Subject

__all__ = ["NEEDS", "Detail", "Estimate", "Measure", "MeasureInfo", "measure"]

NEEDS = frozenset({"weights", "initial_weights", "training_data", "gradients", "trace"})
"""What a measure may declare that it needs of a subject."""

Detail = Mapping[str, float | dict[str, float]]
"""What a measure said beside its number: `standard_error`, `samples`, and `layers` by name."""
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

    def detail(self) -> Detail:
        """What is known beside the value, as JSON values; numbers that are not finite are left out."""
        found: dict[str, float | dict[str, float]] = {}
        if self.standard_error is not None and math.isfinite(self.standard_error):
            found["standard_error"] = self.standard_error
        if self.samples is not None:
            found["samples"] = self.samples
        layers = {name: number for name, number in self.layers.items() if math.isfinite(number)}
        return {**found, "layers": layers} if layers else found


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

    def __post_init__(self) -> None:
        """Built by hand or by `@genbench.measure`, it must keep the contract."""
        object.__setattr__(self, "needs", _set_of(self.needs))
        object.__setattr__(self, "version", str(self.version))
        _validate(self)

    def __call__(self, subject: Subject) -> float:
        """Compute the measure on `subject`, in this process and without any guard."""
        return self.function(subject)

    @property
    def description(self) -> str:
        """The whole docstring: formula, reference and known limits."""
        return inspect.getdoc(self.function) or self.summary

    @property
    def info(self) -> MeasureInfo:
        """All of it but the function, for processes that must not hold a plugin's code."""
        return MeasureInfo(**{known.name: getattr(self, known.name) for known in fields(MeasureInfo)})


@dataclass(frozen=True)
class MeasureInfo:
    """Everything known about a measure but its function, with the fields of `Measure`."""

    name: str
    summary: str
    description: str = ""
    """The whole docstring: formula, reference and known limits."""
    category: str = "other"
    needs: frozenset[str] = frozenset({"weights"})
    higher_means: HigherMeans = "worse"
    randomness: Randomness = "none"
    logarithm: bool = False
    cost: Cost = ""
    paper: str = ""
    version: str = "1"


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
        return Measure(
            name=name if name is not None else getattr(function, "__name__", ""),
            function=function,
            summary=(inspect.getdoc(function) or "").strip().split("\n")[0],
            category=category,
            needs=_set_of(needs),
            higher_means=higher_means,
            randomness=randomness,
            logarithm=logarithm,
            cost=cost,
            paper=paper,
            version=version,
        )

    return decorate if function is None else decorate(function)


def _set_of(needs: str | Iterable[str]) -> frozenset[str]:
    """A single need may be written without braces."""
    return frozenset({needs} if isinstance(needs, str) else needs)


def _validate(candidate: Measure) -> None:
    name = candidate.name
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and name == name.lower()):
        raise ContractError(
            f"measure name {name!r} is not valid: use lower-case letters, digits and underscores, "
            "for example @genbench.measure(name='my_measure')"
        )
    if not callable(candidate.function):
        raise ContractError(f"measure {name!r} decorates {candidate.function!r}, which is not a function")
    _require_one_argument(candidate)
    if not candidate.summary.strip():
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
    return ", ".join(sorted(map(str, names)))
