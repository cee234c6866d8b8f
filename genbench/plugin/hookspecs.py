"""Every hook of genbench. Built-ins and third-party packages register through these alone.

A package names a module in the entry-point group `genbench`; functions of that module that carry one of
these names and the `genbench.hookimpl` mark are called once, and return lists; `genbench_prepare` is called
where readings are taken, and returns nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from genbench.plugin.contract import Measure
    from genbench.plugin.offers import Backbone, Dataset, Degradation, Executor, SuiteFile
    from genbench.plugin.suite_kind import SuiteKind

__all__ = ["ENTRY_POINT_GROUP", "hookimpl"]

ENTRY_POINT_GROUP = "genbench"

hookspec = pluggy.HookspecMarker("genbench")
hookimpl = pluggy.HookimplMarker("genbench")


@hookspec
def genbench_measures() -> list[Measure]:  # type: ignore[empty-body]
    """Measures, made with `@genbench.measure`."""


@hookspec
def genbench_backbones() -> list[Backbone]:  # type: ignore[empty-body]
    """Pretrained networks for the testbed."""


@hookspec
def genbench_datasets() -> list[Dataset]:  # type: ignore[empty-body]
    """Image data sets with named classes."""


@hookspec
def genbench_degradations() -> list[Degradation]:  # type: ignore[empty-body]
    """Ways to degrade images to a target SSIM."""


@hookspec
def genbench_suites() -> list[SuiteFile]:  # type: ignore[empty-body]
    """Suites, as TOML files."""


@hookspec
def genbench_suite_kinds() -> list[SuiteKind]:  # type: ignore[empty-body]
    """Kinds of suites, as `kind = "…"` in a suite's file names them."""


@hookspec
def genbench_executors() -> list[Executor]:  # type: ignore[empty-body]
    """Ways to run cells of work."""


@hookspec
def genbench_prepare() -> None:
    """Import what readings need, once for all of them."""
