"""Things that plugins offer, as this process knows them: all that was said of them, and no code.

A measure's function stays in sealed processes. Other functions (the loader of a data set, say) are imported
when they are called, and with them the one plugin that was chosen; what looks whether something is available,
which listings call for everything, runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from genbench.errors import UserError, one_line, printable
from genbench.plugin.contract import Measure
from genbench.plugin.described import Offered
from genbench.plugin.loading import calls_of, load_source
from genbench.plugin.offers import Availability, Backbone, Dataset, Degradation, Executor, SuiteFile
from genbench.plugin.source import Source
from genbench.plugin.suite_kind import SuiteKind

__all__ = ["FunctionElsewhere", "Question", "known_here", "real_item"]

_SECONDS = 60.0
"""For a plugin to look whether something of it is available."""


class FunctionElsewhere:
    """Stands for a measure's function, which this process does not have."""

    def __init__(self, name: str, module: str, description: str) -> None:
        self.__name__ = name
        self.__module__ = module
        self.__doc__ = description

    def __call__(self, subject: object) -> float:
        """Say that it cannot be called here."""
        raise RuntimeError(f"{self.__name__} is a plugin's measure: it is read in sealed processes alone")


class _Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of anything."""

    name: str


class _MeasureValues(_Values, frozen=True):
    summary: str
    category: str
    needs: list[str]
    higher_means: Literal["worse", "better"]
    randomness: Literal["none", "seeded"]
    logarithm: bool
    cost: Literal["", "low", "medium", "high"]
    paper: str
    version: str


class _DatasetValues(_Values, frozen=True):
    summary: str
    classes: int | None
    image_size: tuple[int, int, int] | None
    source: str
    version: str


class _BackboneValues(_Values, frozen=True):
    family: str
    summary: str
    weight_count: int | None
    feature_width: int | None
    image_size: int | None
    source: str
    version: str


class _DegradationValues(_Values, frozen=True):
    summary: str
    version: str


class _SuiteValues(_Values, frozen=True):
    path: str


class _SummedUp(_Values, frozen=True):
    summary: str


class _ExecutorValues(_SummedUp, frozen=True):
    elsewhere: bool


def known_here(source: Source, offered: Offered) -> Any:
    """What `source` offers, with all but its functions.

    Raises
    ------
    ContractError, msgspec.ValidationError
        If what its process said of it cannot be.
    """
    form, build = _FORMS[offered.kind]
    values = msgspec.convert(offered.values, form)
    return build(source, offered, msgspec.structs.asdict(values))


def _measure(source: Source, offered: Offered, values: dict[str, Any]) -> Measure:
    function = FunctionElsewhere(values["name"], offered.module, offered.description)
    return Measure(function=function, **{**values, "needs": frozenset(values["needs"])})


def _with(form: type, *functions: str) -> Any:
    """Builds a `form` whose functions are imported when they are called."""

    def build(source: Source, offered: Offered, values: dict[str, Any]) -> Any:
        name = values["name"]
        lazy = {one: _Function(source, offered.kind, name, one) for one in functions}
        if "path" in values:
            values["path"] = Path(values["path"])
        return form(**values, **lazy)

    return build


_FORMS: dict[str, tuple[type[_Values], Any]] = {
    "measures": (_MeasureValues, _measure),
    "datasets": (_DatasetValues, _with(Dataset, "load", "available")),
    "backbones": (_BackboneValues, _with(Backbone, "load", "available")),
    "degradations": (_DegradationValues, _with(Degradation, "fit")),
    "suites": (_SuiteValues, _with(SuiteFile)),
    "suite_kinds": (_SummedUp, _with(SuiteKind, "create")),
    "executors": (_ExecutorValues, _with(Executor, "create")),
}


class _Function:
    """A function of something that a plugin offers, imported when it is called."""

    def __init__(self, source: Source, kind: str, name: str, field: str) -> None:
        self._source, self._kind, self._name, self._field = source, kind, name, field

    def __call__(self, *arguments: Any) -> Any:
        """Call it: here, or for a look at what is available, elsewhere."""
        if self._field == "available":
            return _available(self._source, self._kind, self._name, *arguments)
        return getattr(real_item(self._source, self._kind, self._name), self._field)(*arguments)


@cache
def real_item(source: Source, kind: str, name: str) -> Any:
    """What a plugin offers under this name, with its code: the plugin is imported."""
    found = [item for item in calls_of(source, load_source(source)).get(kind, []) if _named(item) == name]
    if not found:
        raise UserError(f"{source} does not offer the {kind[:-1]} {name!r} any more; run the command again")
    return found[0]


def _named(item: object) -> str:
    return str(getattr(item, "name", ""))


class Question(msgspec.Struct, frozen=True):
    """Is something of a plugin available?"""

    source: Source
    kind: str
    name: str
    request: dict[str, Any]
    """Fields of a `DataRequest` or a `BackboneRequest`."""


def _available(source: Source, kind: str, name: str, request: object) -> Availability:
    """What the plugin says, in a process of its own; not sealed, because it looks for the user's files."""
    question = Question(source, kind, name, msgspec.to_builtins(request, enc_hook=str))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "genbench.plugin.looking"],
            input=msgspec.json.encode(question),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Availability(False, f"{source} did not say within {_SECONDS:g} s whether {name} is available")
    try:
        found = msgspec.json.decode(done.stdout.rpartition(b"\n")[2], type=Availability)
    except msgspec.MsgspecError:
        return Availability(False, f"{source} cannot say whether {name} is available; see `genbench plugins`")
    return Availability(found.ready, one_line(printable(found.detail, lines=True), 1000))
