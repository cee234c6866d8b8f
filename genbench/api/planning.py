"""What a run is about: the measures asked for, the baselines, and whatever is known in full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.api.readings import AnyMeasure
from genbench.errors import UserError
from genbench.plugin.contract import Measure

if TYPE_CHECKING:
    from genbench.api.suites import LoadedSuite
    from genbench.plugin.registry import Entry
    from genbench.runs.plan import Plan

__all__ = ["RunPlan", "as_measures", "plan_run"]


@dataclass(frozen=True)
class RunPlan:
    """Readings that are taken in processes of their own, and measures that are read in this one."""

    plan: Plan
    here: list[Measure]
    """Given as themselves: no other process can get hold of their code."""


def as_measures(measures: AnyMeasure | Iterable[AnyMeasure]) -> list[AnyMeasure]:
    """One measure or several, each once."""
    if callable(measures) and not isinstance(measures, Measure):
        raise UserError(f"{measures!r} is a plain function; decorate it with @genbench.measure")
    given: list[object] = [measures] if isinstance(measures, (str, Path, Measure)) else list(measures)
    found: list[AnyMeasure] = []
    for one in given:
        if not isinstance(one, (str, Path, Measure)):
            raise UserError(f"{one!r} is no measure: give a name, a file or what @genbench.measure made")
        if one not in found:
            found.append(one)
    return found


def plan_run(loaded: LoadedSuite, measures: Iterable[AnyMeasure], *, everything: bool = False) -> RunPlan:
    """The run of `measures` on `loaded`, and of every registered one if `everything`."""
    from genbench.plugin.registry import BUILT_IN, load_registry
    from genbench.records.references import find_references
    from genbench.runs.plan import make_plan, stored_measures

    chosen, here = _found(measures)
    if not chosen and not here and not everything:
        raise UserError("say what to run: --measure NAME, --measure ./file.py, or --all")
    names = {measure.name for measure in here}
    for entry in chosen:
        if entry.item.name in names:
            raise UserError(f"measure {entry.item.name!r} is given twice; rename one of them")
    asked = {entry.item.name for entry in chosen} | names
    inner, pack = loaded.suite, loaded.pack
    others = [e for e in load_registry().measures.values() if e.item.name not in asked]
    if everything:
        chosen += others
        plan = make_plan(inner, chosen, pack=pack)
        return RunPlan(replace(plan, asked=plan.asked | names), here)
    references = find_references(make_plan(inner, [], pack=pack), but=asked)
    unknown = [entry for entry in others if entry.item.name not in references]
    # The baselines are the anchors of every table, computed where their readings are not recorded.
    anchors = [e for e in unknown if e.item.category == "baseline" and e.source.kind == BUILT_IN]
    known = stored_measures(inner, [e for e in unknown if e not in anchors], loaded.store, pack)
    chosen += [e for e in unknown if e in anchors or e in known]
    plan = make_plan(inner, chosen, asked=asked, pack=pack)
    return RunPlan(replace(plan, references=references), here)


def _found(measures: Iterable[AnyMeasure]) -> tuple[list[Entry[Measure]], list[Measure]]:
    """Those that other processes can load, and those that only this one has."""
    from genbench.plugin.registry import find_measure, load_registry

    chosen: list[Entry[Measure]] = []
    here: list[Measure] = []
    for one in measures:
        if not isinstance(one, Measure):
            chosen += find_measure(str(one))
            continue
        registered = load_registry().measures.get(one.name)
        if registered is not None and registered.item is one:
            chosen.append(registered)
        else:
            here.append(one)
    return chosen, here
