"""All that plugins offer, and what is wrong with those that are broken, which hurt nothing else.

Plugins are asked in processes of their own (`genbench.plugin.described`), so that an exception, a crash, a
wrong signature or a duplicate name costs only the plugin it belongs to. What went wrong is kept for
`genbench plugins`.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from genbench.errors import ContractError, UserError, described
from genbench.plugin.contract import Measure
from genbench.plugin.described import describe
from genbench.plugin.elsewhere import known_here
from genbench.plugin.loading import calls_of, load_file, load_source, source_measures
from genbench.plugin.offers import Backbone, Dataset, Degradation, Executor, SuiteFile
from genbench.plugin.source import BUILT_IN, BUILTIN, Source, package_sources
from genbench.plugin.suite_kind import SuiteKind

__all__ = [
    "BUILTIN",
    "BUILT_IN",
    "Entry",
    "PluginReport",
    "Registry",
    "Source",
    "find_measure",
    "find_measure_here",
    "load_file",
    "load_registry",
    "load_source",
    "source_measures",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """Something registered, and who registered it."""

    item: T
    source: Source


@dataclass
class PluginReport:
    """What `genbench plugins` shows of one plugin."""

    source: Source
    offers: dict[str, list[str]] = field(default_factory=dict)
    """Kind to names that were accepted."""
    problems: list[str] = field(default_factory=list)
    """One sentence each."""
    trace: str = ""
    """Traceback of the last exception, if there was one."""
    seconds: float = 0.0
    """Time to import it and to call its hooks."""
    heavy_imports: list[str] = field(default_factory=list)
    """Large packages that it imported while loading, which slow down every command."""

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong."""
        return not self.problems


@dataclass
class Registry:
    """All that plugins offer, by kind and name."""

    measures: dict[str, Entry[Measure]] = field(default_factory=dict)
    backbones: dict[str, Entry[Backbone]] = field(default_factory=dict)
    datasets: dict[str, Entry[Dataset]] = field(default_factory=dict)
    degradations: dict[str, Entry[Degradation]] = field(default_factory=dict)
    suites: dict[str, Entry[SuiteFile]] = field(default_factory=dict)
    suite_kinds: dict[str, Entry[SuiteKind]] = field(default_factory=dict)
    executors: dict[str, Entry[Executor]] = field(default_factory=dict)
    plugins: list[PluginReport] = field(default_factory=list)
    ambiguous: dict[tuple[str, str], list[Source]] = field(default_factory=dict)
    """(kind, name) offered by several packages: using it is an error that names them."""

    def get(self, kind: str, name: str) -> Entry[Any]:
        """The entry called `name`, or a `UserError` that suggests the nearest names."""
        rivals = self.ambiguous.get((kind, name))
        if rivals:
            raise UserError(
                f"{kind[:-1]} {name!r} is offered by {' and by '.join(map(str, rivals))}; "
                "uninstall one of them or ask its author to rename it"
            )
        entries: dict[str, Entry[Any]] = getattr(self, kind)
        if name in entries:
            return entries[name]
        raise UserError(unknown_name(kind[:-1], name, entries, f"genbench {kind}"))

    def resolve(self, kind: str, name: str) -> tuple[Entry[Any], str]:
        """The entry for `name` and its argument: "timm:resnet18" is the entry "timm:" with "resnet18"."""
        family, colon, argument = name.partition(":")
        entries: dict[str, Entry[Any]] = getattr(self, kind)
        if name not in entries and argument and f"{family}{colon}" in entries:
            return entries[f"{family}{colon}"], argument
        return self.get(kind, name), ""


def unknown_name(what: str, name: str, known: Iterable[str], listing: str) -> str:
    """One sentence for a wrong name: the nearest right ones, or the command that lists all."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    if near:
        return f"unknown {what} {name!r}; did you mean {' or '.join(repr(n) for n in near)}?"
    return f"unknown {what} {name!r}; `{listing}` lists them all"


@cache
def load_registry() -> Registry:
    """The built-ins, and what every installed plugin says that it offers.

    Imports no plugin, and never raises for a plugin's fault.
    """
    registry = Registry()
    _register_own(registry, Source("built-in", BUILTIN, module="genbench.plugin.builtin"))
    for source in package_sources():
        _register(registry, source)
    return registry


def _register_own(registry: Registry, source: Source) -> None:
    report = PluginReport(source)
    registry.plugins.append(report)
    started = time.perf_counter()
    for kind, items in calls_of(source, load_source(source)).items():
        for item in items:
            _accept(registry, report, kind, item)
    report.seconds = time.perf_counter() - started


def _register(registry: Registry, source: Source) -> None:
    found = describe(source)
    report = PluginReport(source, {}, list(found.problems), found.trace, found.seconds, found.heavy_imports)
    registry.plugins.append(report)
    for offered in found.offers:
        try:
            item = known_here(source, offered)
        except (ContractError, msgspec.MsgspecError, KeyError, TypeError) as problem:
            report.problems.append(f"what it offers cannot be understood: {described(problem)}")
            continue
        _accept(registry, report, offered.kind, item)


def _accept(registry: Registry, report: PluginReport, kind: str, item: Any) -> None:
    name = item.name
    entries: dict[str, Entry[Any]] = getattr(registry, kind)
    earlier = registry.ambiguous.get((kind, name)) or ([entries[name].source] if name in entries else [])
    if not earlier:
        entries[name] = Entry(item, report.source)
        report.offers.setdefault(kind, []).append(name)
        return
    report.problems.append(
        f"{kind[:-1]} {name!r} is already registered by {' and '.join(map(str, earlier))}; rename it"
    )
    if earlier[0].kind != "built-in" and report.source not in earlier:
        # Neither package has a better claim: refuse to guess.
        entries.pop(name, None)
        registry.ambiguous[kind, name] = [*earlier, report.source]
        for other in registry.plugins:
            if other.source in earlier and name in other.offers.get(kind, []):
                other.offers[kind].remove(name)
                other.problems.append(f"{kind[:-1]} {name!r} is also registered by {report.source}")


def find_measure(spec: str) -> list[Entry[Measure]]:
    """Measures meant by `spec`: a registered name, `file.py` (all in it) or `file.py:function`."""
    if _is_file(spec):
        return _measures_in_file(_file_source(spec), spec.partition(".py")[2].removeprefix(":"))
    return [load_registry().get("measures", spec)]


def find_measure_here(spec: str) -> list[Entry[Measure]]:
    """The same, to be called in this process, which imports the plugin: code that a person has named."""
    found = find_measure(spec) if not _is_file(spec) else []
    if found and found[0].source.kind == BUILT_IN:
        return found
    source = found[0].source if found else _file_source(spec)
    try:
        own = source_measures(source)
    except Exception as problem:
        raise UserError(f"{source} cannot be imported: {described(problem)}") from problem
    wanted = found[0].item.name if found else spec.partition(".py")[2].removeprefix(":")
    if wanted and wanted not in own:
        raise UserError(unknown_name("measure", wanted, own, f"grep genbench.measure {source.module}"))
    if not own:
        raise UserError(
            f"{source} defines no measure; decorate a function of one argument with @genbench.measure"
        )
    return [Entry(item, source) for name, item in own.items() if wanted in ("", name)]


def _is_file(spec: str) -> bool:
    _, dot, function = spec.partition(".py")
    return bool(dot) and (function == "" or function.startswith(":"))


def _file_source(spec: str) -> Source:
    path = Path(spec.partition(".py")[0] + ".py")
    if not path.is_file():
        raise UserError(f"there is no file {path}; give the path of a Python file with a measure in it")
    return Source("file", str(path), module=str(path.resolve()))


def _measures_in_file(source: Source, function: str) -> list[Entry[Measure]]:
    path = source.plugin
    found = describe(source)
    if found.problems:
        raise UserError(f"{path} cannot be imported: {found.problems[0]}")
    try:
        items = [known_here(source, offered) for offered in found.offers if offered.kind == "measures"]
    except (ContractError, msgspec.MsgspecError, TypeError) as problem:
        raise UserError(f"{path} cannot be imported: {described(problem)}") from problem
    measures: dict[str, Measure] = {item.name: item for item in items}
    if function:
        if function not in measures:
            raise UserError(unknown_name("measure", function, measures, f"grep genbench.measure {path}"))
        return [Entry(measures[function], source)]
    if not measures:
        raise UserError(
            f"{path} defines no measure; decorate a function of one argument with @genbench.measure"
        )
    return [Entry(item, source) for item in measures.values()]
