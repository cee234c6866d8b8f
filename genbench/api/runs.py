"""`genbench.run`: measures on all networks of a suite, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from genbench.api.execution import ExecutionArguments
from genbench.api.planning import RunPlan, as_measures, plan_run
from genbench.api.readings import AnyMeasure
from genbench.api.suites import DEFAULT_SUITE, AnySuite, LoadedSuite, open_suite
from genbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from genbench.engine.scheduler import Progress
    from genbench.runs.execute import RunOptions, RunResult
    from genbench.runs.plan import Plan
    from genbench.suites.fields import Toml
    from genbench.suites.pages import Pages
    from genbench.suites.result import MeasureResult

__all__ = ["Run", "run"]


def run(
    measure: AnyMeasure | Iterable[AnyMeasure] = (),
    suite: AnySuite = DEFAULT_SUITE,
    *,
    all_measures: bool = False,
    quick: bool = False,
    changes: Toml | None = None,
    pack: str | Path | None = None,
    from_scratch: bool = False,
    store: str | Path | None = None,
    records: str | Path | None = None,
    progress: bool = True,
    **execution: Unpack[ExecutionArguments],
) -> Run:
    """Score measures against held-out truth: what `genbench run` does.

    A measure by name or file is read in guarded processes of its own and its readings are kept: the same
    call goes on after an interruption. A `genbench.Measure` that was made in this program or notebook is
    read in this process, each time anew, and what it prints or raises is seen here.

        found = genbench.run("path_norm")
        found.scores.head()
        found.scatter()

    Parameters
    ----------
    measure : a name, a file ("./mine.py" or "./mine.py:function"), a `genbench.Measure`, or several.
    suite : a name, a TOML file, or what `genbench.load_suite` gave.
    all_measures : every registered measure too.
    quick, changes, pack, from_scratch, store : as for `genbench.load_suite`.
    records : a folder for a result record of every measure, as leaderboards keep them.
    progress : show a bar on a terminal or in a notebook, lines elsewhere.
    execution : `jobs`, `device`, `threads`, `autocast`, `timeout`, `memory`, `executor`.
    """
    chosen = as_measures(measure)
    opened = open_suite(
        suite,
        store,
        **execution,
        **{
            name: value
            for name, value in (
                ("quick", quick), ("changes", changes), ("pack", pack), ("from_scratch", from_scratch),
            )
            if value
        },
    )  # fmt: skip
    how = opened.execution.settle()
    planned = plan_run(opened, chosen, everything=all_measures)
    return execute_plan(opened, planned, how, records=records, progress=progress)


def execute_plan(
    loaded: LoadedSuite,
    planned: RunPlan,
    how: RunOptions,
    *,
    records: str | Path | None = None,
    progress: bool = True,
    quiet: bool = False,
) -> Run:
    """Bring a planned run to its end.

    Parameters
    ----------
    progress : whether to show any.
    quiet : lines instead of bars, for whoever prints a document.
    """
    from genbench.api.here import read_here
    from genbench.report.progress import make_progress, silent_progress
    from genbench.runs.execute import bring_to_end, execute, require_ready, workers_of
    from genbench.runs.plan import make_plan

    plan, store = planned.plan, loaded.store
    if records is not None:
        from genbench.records.write import require_recordable

        require_recordable(plan.suite)
        if planned.here:
            raise UserError(f"a record needs code in a file; put {planned.here[0].name} into one")
    require_ready(plan, how.get("executor", "local"))

    def display(about: Plan) -> AbstractContextManager[Progress]:
        if not progress:
            return silent_progress()
        return make_progress(about, store, jobs=workers_of(about, store, how), quiet=quiet)

    if planned.here and loaded.pack is None:
        # Trained by all workers at once, before they are asked for one by one.
        kept = replace(make_plan(plan.suite, []), evidence=loaded.plan.with_all_kept())
        with display(kept) as shown:
            bring_to_end(kept, store, shown, lambda opened, outcomes: None, **how)
    results = read_here(loaded, planned.here, how, shown=progress)
    plan = replace(plan, references={**results, **plan.references})
    with display(plan) as shown:
        found = execute(plan, store, shown, **how)
    if records is not None:
        from genbench.records.write import write_records

        write_records(found, Path(records))
    return Run(found)


class Run:
    """Readings and scores of a run, as tables, figures and a page."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        """All of it, as the command line has it."""

    @property
    def suite(self) -> str:
        """What it was run on."""
        return self.result.plan.suite.title

    @property
    def measures(self) -> list[str]:
        """Those asked for."""
        return [one.name for one in self.result.asked]

    @cached_property
    def _pages(self) -> Pages:
        return self.result.evidence.pages(self.result.judged)

    @cached_property
    def readings(self) -> pd.DataFrame:
        """One row per measure and network, those asked for first, with the truth beside each."""
        import pandas as pd

        asked = {one.name for one in self.result.asked}
        ordered = sorted(self.result.measures, key=lambda one: one.name not in asked)
        truths = {network: self._pages.truth(network) for network in self.result.evidence.networks}
        rows = [
            {
                "measure": one.name,
                "network": network,
                "value": outcome.value,
                "standard_error": outcome.detail.get("standard_error"),
                "truth": truths.get(network),
                "status": str(outcome.status),
                "reason": outcome.reason,
                "seconds": outcome.cost.seconds,
                "shared_seconds": outcome.cost.shared_seconds,
                "peak_bytes": outcome.cost.peak_bytes,
                "computed": outcome.computed,
            }
            for one in ordered
            for network, outcome in one.outcomes.items()
        ]
        frame = pd.DataFrame(rows)
        return frame.astype(dict.fromkeys(("value", "standard_error", "truth"), float))

    @cached_property
    def layers(self) -> pd.DataFrame:
        """What each layer gave, of the measures asked for that say so: measure, network, layer, value."""
        import pandas as pd

        rows = [
            {"measure": one.name, "network": network, "layer": layer, "value": value}
            for one in self.result.asked
            for network, outcome in one.outcomes.items()
            for layer, value in _layers(outcome.detail)
        ]
        return pd.DataFrame(rows, columns=["measure", "network", "layer", "value"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per network: its truth, then one column per measure."""
        wide = self.readings.pivot(index="network", columns="measure", values="value")
        names = list(dict.fromkeys(self.readings["measure"]))
        networks = self.result.evidence.networks
        truth = self.readings.drop_duplicates("network").set_index("network")["truth"]
        wide = wide.reindex(index=networks, columns=names)
        wide.insert(0, "truth", truth)
        wide.columns.name = None
        return wide

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per measure, best first: rank, sign-error with its interval, questions passed, the rest."""
        import pandas as pd

        judged, evidence = self.result.judged, self.result.evidence
        rows = []
        for rank, one in judged.ranked:
            headline = judged.headline(one)
            row: dict[str, Any] = {
                "measure": one.name,
                "rank": rank,
                "sign_error": None if headline is None else headline.value,
                "low": None if headline is None else headline.low,
                "high": None if headline is None else headline.high,
            }
            if judged.claims is not None:
                row["passes"] = " ".join(judged.claims.measures[one.name].verdict)
            for column in (*evidence.columns, *evidence.counts):
                row[column.label] = None if one.score is None else column.number(one.score)
            row |= {
                "asked": one.name in self.result.plan.asked,
                "baseline": one.baseline,
                "recorded": one.reference,
                "seconds": one.seconds,
            }
            rows.append(row)
        return pd.DataFrame(rows).set_index("measure")

    def verdict(self, measure: str | None = None) -> str:
        """What came of one measure, in plain words."""
        from genbench.report.plain_words import plain_verdict

        return " ".join(plain_verdict(self.result, self._one(measure)))

    def scatter(self, measure: str | None = None) -> Figure:
        """Readings of one measure against the truth."""
        from genbench.display.scatter import reading_scatter

        one = self._one(measure)
        panels = self._pages.panels(one)
        if not any(panel.points for panel in panels):
            raise UserError(f"{one.name} has no reading of a network that is judged, so there is no scatter")
        return reading_scatter(f"{one.name} (higher should mean {one.measure.higher_means})", panels)

    def figures(self, measure: str | None = None) -> dict[str, Figure]:
        """The figures of the papers about one measure among the others, by file name."""
        return self._pages.figures(self._one(measure))

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run's HTML page, into the store unless said otherwise; returns where it is."""
        from genbench.report.run_page import check_page_path, default_page, write_run_page

        if path is not None:
            check_page_path(Path(path))
        page = default_page(self.result.store, self.result.plan.suite) if path is None else Path(path)
        write_run_page(self.result, page)
        return page

    def _one(self, name: str | None) -> MeasureResult:
        """A measure of the run; without a name the only one that was asked for."""
        if name is None:
            if len(self.result.asked) != 1:
                raise UserError(f"say which measure: {', '.join(self.measures)}")
            return self.result.asked[0]
        for one in self.result.measures:
            if one.name == name:
                return one
        from genbench.plugin.registry import unknown_name

        known = [one.name for one in self.result.measures]
        raise UserError(unknown_name("measure", name, known, "run.scores"))

    def __repr__(self) -> str:
        words = [f"<run of {', '.join(self.measures[:3])} on {self.suite}"]
        if len(self.measures) == 1:
            words.append(self.verdict())
        return ": ".join(words) + ">"

    def _repr_html_(self) -> str:
        from genbench.api.views import run_view

        return run_view(self)


def _layers(detail: Any) -> list[tuple[str, float]]:
    return list(detail.get("layers", {}).items())
