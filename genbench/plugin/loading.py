"""Imports a plugin into this process and asks it what it offers; whatever it raises comes through."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

import genbench._torchvision  # noqa: F401  plugins and users' files may import it, timm or open_clip
from genbench.errors import UserError
from genbench.plugin import hookspecs
from genbench.plugin.contract import Measure
from genbench.plugin.offers import Backbone, Dataset, Degradation, Executor, SuiteFile
from genbench.plugin.source import Source
from genbench.plugin.suite_kind import SuiteKind

__all__ = ["KINDS", "calls_of", "load_file", "load_source", "source_measures"]

KINDS: dict[str, type[Any]] = {
    "measures": Measure,
    "backbones": Backbone,
    "datasets": Dataset,
    "degradations": Degradation,
    "suites": SuiteFile,
    "suite_kinds": SuiteKind,
    "executors": Executor,
}
"""What can be offered: the hook is called genbench_ and this."""


def load_source(source: Source) -> ModuleType:
    """Import the module behind `source`."""
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


def calls_of(source: Source, module: ModuleType) -> dict[str, list[object]]:
    """Kind to what each hook of one plugin returned; of a file without hooks, the measures in it."""
    if source.kind == "file" and not hasattr(module, "genbench_measures"):
        return {"measures": [value for value in vars(module).values() if isinstance(value, Measure)]}
    manager = _manager(module, source.plugin)
    offers: dict[str, list[object]] = {}
    for kind in KINDS:
        for answer in getattr(manager.hook, f"genbench_{kind}")():
            if not isinstance(answer, (list, tuple)):
                raise TypeError(
                    f"genbench_{kind}() returned {type(answer).__name__}, expected a list of "
                    f"{KINDS[kind].__name__}"
                )
            offers.setdefault(kind, []).extend(answer)
    return offers


def source_measures(source: Source, *, prepare: bool = False) -> dict[str, Measure]:
    """The measures of one plugin alone, by name: what a worker needs to run one of them.

    Parameters
    ----------
    prepare : let the plugin import what its readings need, as in a process that they are forked from.
    """
    module = load_source(source)
    if prepare:
        _manager(module, source.plugin).hook.genbench_prepare()
    found = calls_of(source, module).get("measures", [])
    return {item.name: item for item in found if isinstance(item, Measure)}
