"""Finds plugins, asks each for what it offers, and keeps a broken one from hurting anything else.

Every hook implementation is called on its own, so that an exception, a wrong signature or a duplicate
name costs only the plugin it belongs to. What went wrong is kept for `genbench plugins`.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar

import pluggy

import genbench._torchvision  # noqa: F401  plugins and users' files may import it, timm or open_clip
from genbench.errors import UserError, described
from genbench.plugin import hookspecs
from genbench.plugin.contract import Measure
from genbench.plugin.offers import Backbone, Dataset, Degradation, Executor, SuiteFile
from genbench.plugin.suite_kind import SuiteKind

__all__ = [
    "BUILTIN",
    "BUILT_IN",
    "Entry",
    "PluginReport",
    "Registry",
    "Source",
    "find_measure",
    "load_file",
    "load_registry",
    "load_source",
    "source_measures",
]

BUILTIN = "genbench"
"""Name of the plugin that carries everything built in."""
BUILT_IN: Final = "built-in"
"""Kind of its source."""
SourceKind = Literal["built-in", "package", "file"]

T = TypeVar("T")

_KINDS: dict[str, type[Any]] = {
    "measures": Measure,
    "backbones": Backbone,
    "datasets": Dataset,
    "degradations": Degradation,
    "suites": SuiteFile,
    "suite_kinds": SuiteKind,
    "executors": Executor,
}


@dataclass(frozen=True)
class Source:
    """Where a plugin's code comes from, in words that a worker process can load it from again."""

    kind: SourceKind
    plugin: str
    """Entry-point name, "genbench" for the built-ins, or the file's path."""
    distribution: str = ""
    version: str = ""
    module: str = ""
    """Module of the entry point, or absolute path of the file."""

    def __str__(self) -> str:
        if self.kind == "package":
            return f"{self.distribution} {self.version}"
        return "built-in" if self.kind == "built-in" else self.plugin


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
    """Load the built-ins and every installed plugin. Never raises for a plugin's fault."""
    registry = Registry()
    sources = [Source("built-in", BUILTIN, module="genbench.plugin.builtin")]
    sources += sorted(
        (_package_source(dist, point) for dist, point in _entry_points()),
        key=lambda s: (s.distribution, s.plugin),
    )
    for source in sources:
        _register(registry, source)
    return registry


def _entry_points() -> Iterable[tuple[Distribution, EntryPoint]]:
    seen = set()
    for dist in distributions():
        for point in dist.entry_points:
            # An editable install beside a build folder lists the same distribution twice.
            if point.group == hookspecs.ENTRY_POINT_GROUP and (dist.name, point.name) not in seen:
                seen.add((dist.name, point.name))
                yield dist, point


def _package_source(dist: Distribution, point: EntryPoint) -> Source:
    return Source("package", point.name, dist.name, dist.version, point.value)


def _register(registry: Registry, source: Source) -> None:
    report = PluginReport(source)
    registry.plugins.append(report)
    heavy = {"torch", "torchvision", "timm", "open_clip", "pandas", "tensorflow", "jax"}
    heavy -= sys.modules.keys()
    started = time.perf_counter()
    try:
        plugin = load_source(source)
        for kind, items in _offers(plugin, source.plugin).items():
            for item in items:
                _accept(registry, report, kind, item)
    except (Exception, SystemExit) as problem:
        report.problems.append(described(problem))
        report.trace = traceback.format_exc()
    report.seconds = time.perf_counter() - started
    report.heavy_imports = sorted(heavy & sys.modules.keys())


def load_source(source: Source) -> ModuleType:
    """Import the module behind `source`; whatever its import raises comes through."""
    if source.kind == "file":
        return load_file(Path(source.module))
    module: ModuleType = EntryPoint(source.plugin, source.module, hookspecs.ENTRY_POINT_GROUP).load()
    return module


def load_file(path: Path) -> ModuleType:
    """Import a single Python file as a plugin."""
    spec = importlib.util.spec_from_file_location(f"genbench_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file; a measure file ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up there
    spec.loader.exec_module(module)
    return module


def _manager(plugin: object, name: str) -> pluggy.PluginManager:
    """The hooks of one plugin alone; pluggy checks their signatures."""
    manager = pluggy.PluginManager("genbench")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name)
    manager.check_pending()
    return manager


def _offers(plugin: object, name: str) -> dict[str, list[object]]:
    """Call each hook of one plugin by which it offers something."""
    manager = _manager(plugin, name)
    offers: dict[str, list[object]] = {}
    for kind in _KINDS:
        for answer in getattr(manager.hook, f"genbench_{kind}")():
            if not isinstance(answer, (list, tuple)):
                raise TypeError(
                    f"genbench_{kind}() returned {type(answer).__name__}, expected a list of "
                    f"{_KINDS[kind].__name__}"
                )
            offers.setdefault(kind, []).extend(answer)
    return offers


def _accept(registry: Registry, report: PluginReport, kind: str, item: object) -> None:
    expected = _KINDS[kind]
    if not isinstance(item, expected):
        hint = "; decorate it with @genbench.measure" if expected is Measure and callable(item) else ""
        report.problems.append(
            f"genbench_{kind}() returned {item!r}, which is not a genbench {expected.__name__}{hint}"
        )
        return
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


def source_measures(source: Source, *, prepare: bool = False) -> dict[str, Measure]:
    """The measures of one plugin alone, by name: what a worker needs to run one of them.

    Parameters
    ----------
    prepare : let the plugin import what its readings need, as in a process that they are forked from.
    """
    module = load_source(source)
    if prepare:
        _manager(module, source.plugin).hook.genbench_prepare()
    if source.kind == "file" and not hasattr(module, "genbench_measures"):
        found = [value for value in vars(module).values() if isinstance(value, Measure)]
    else:
        offered = _offers(module, source.plugin).get("measures", [])
        found = [item for item in offered if isinstance(item, Measure)]
    return {item.name: item for item in found}


def find_measure(spec: str) -> list[Entry[Measure]]:
    """Measures meant by `spec`: a registered name, `file.py` (all in it) or `file.py:function`."""
    path_text, colon, function = spec.partition(".py")
    if colon and (function == "" or function.startswith(":")):
        return _measures_in_file(Path(path_text + ".py"), function.removeprefix(":"))
    return [load_registry().get("measures", spec)]


def _measures_in_file(path: Path, function: str) -> list[Entry[Measure]]:
    if not path.is_file():
        raise UserError(f"there is no file {path}; give the path of a Python file with a measure in it")
    source = Source("file", str(path), module=str(path.resolve()))
    try:
        measures = source_measures(source)
    except (Exception, SystemExit) as problem:
        raise UserError(f"{path} cannot be imported: {described(problem)}") from problem
    if function:
        if function not in measures:
            raise UserError(unknown_name("measure", function, measures, f"grep genbench.measure {path}"))
        return [Entry(measures[function], source)]
    if not measures:
        raise UserError(
            f"{path} defines no measure; decorate a function of one argument with @genbench.measure"
        )
    return [Entry(item, source) for item in measures.values()]
