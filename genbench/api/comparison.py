"""`genbench.compare`: two measures, or two versions of one, and the pairs in which they differ."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from genbench.api.execution import ExecutionArguments
from genbench.api.readings import AnyMeasure
from genbench.api.runs import Run, run
from genbench.api.suites import DEFAULT_SUITE, AnySuite, open_suite
from genbench.errors import UserError
from genbench.scoring.verdicts import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from genbench.packs.pack import Pack
    from genbench.scoring.claims import Claims
    from genbench.suites.result import MeasureResult

__all__ = ["Comparison", "compare"]


def compare(
    first: AnyMeasure | Run,
    second: AnyMeasure | Run,
    suite: AnySuite = DEFAULT_SUITE,
    *,
    quick: bool = False,
    store: str | Path | None = None,
    progress: bool = True,
    **execution: Unpack[ExecutionArguments],
) -> Comparison:
    """Run two measures on a suite and set them side by side; both may have the same name.

        genbench.compare("path_norm", "./mine.py").pairs
        genbench.compare(genbench.run(mine), "path_norm")  # mine is not read again

    Parameters
    ----------
    first, second : names, files with one measure each, `genbench.Measure`s, or runs of one measure on this
        suite, whose readings are taken as they are.
    suite, quick, store, progress, execution : as for `genbench.run`.
    """
    opened = open_suite(suite, store, **({"quick": True} if quick else {}), **execution)
    runs = [one if isinstance(one, Run) else run(one, opened, progress=progress) for one in (first, second)]
    for one, found in zip((first, second), runs, strict=True):
        if len(found.result.asked) != 1:
            if isinstance(one, Run):
                raise UserError(
                    f"a run of several measures is compared one by one; it has {', '.join(found.measures)}"
                )
            raise UserError(f"{one} has several measures; write {one}:{found.measures[0]} for one")
        if (found.result.evidence.suite, _pack_hash(found.result.evidence.pack)) != (
            opened.suite,
            _pack_hash(opened.pack),
        ):
            raise UserError(
                f"a run on suite {found.result.evidence.suite.title} cannot be compared on suite "
                f"{opened.suite.title}; give the suite of the run"
            )
    return Comparison(*runs)


def _pack_hash(pack: Pack | None) -> str:
    return "" if pack is None else pack.hash


class Comparison:
    """Two measures on the same networks."""

    def __init__(self, first: Run, second: Run) -> None:
        self.runs = (first, second)
        names = [run.measures[0] for run in self.runs]
        if names[0] == names[1]:
            sources = [run.result.asked[0].source for run in self.runs]
            shown = [Path(source.plugin).name if source.kind == "file" else str(source) for source in sources]
            marks = shown if shown[0] != shown[1] else ["first", "second"]
            names = [f"{name} ({mark})" for name, mark in zip(names, marks, strict=True)]
        self.measures: list[str] = names
        """What the two are called here."""

    @cached_property
    def _results(self) -> list[MeasureResult]:
        return [
            replace(one.result.asked[0], measure=replace(one.result.asked[0].measure, name=name), score=None)
            for name, one in zip(self.measures, self.runs, strict=True)
        ]

    @cached_property
    def _claims(self) -> Claims | None:
        """Both judged together, with no others beside them."""
        return self.runs[0].result.evidence.judged(self._results).claims

    @cached_property
    def readings(self) -> pd.DataFrame:
        """One row per network: its truth and both readings."""
        tables = [one.table for one in self.runs]
        frame = tables[0][["truth"]].copy()
        for name, one, table in zip(self.measures, self.runs, tables, strict=True):
            frame[name] = table[one.measures[0]]
        return frame

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row each, as `Run.scores` has it."""
        import pandas as pd

        rows = [one.scores.loc[[one.measures[0]]] for one in self.runs]
        frame = pd.concat(rows)
        frame.index = pd.Index(self.measures, name="measure")
        return frame

    @property
    def p(self) -> float | None:
        """That both have the same sign-error, by a paired cluster test; None where a suite cannot say."""
        if self._claims is None:
            return None
        found = float(self._claims.verdict.paired[0, 1])
        return None if found != found else found

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Pairs of networks that one of the two orders right and the other wrong, furthest apart first.

        Pairs are of one family, against every kind of truth that the suite has. Equal readings are wrong
        for whoever has them, if the other orders the pair right.
        """
        import numpy as np
        import pandas as pd

        pages = self.runs[0].result.evidence.pages(self.runs[0].result.judged)
        frames = []
        for number, panel in enumerate(pages.panels(self._results[0])):
            others = {point.name: point for point in pages.panels(self._results[1])[number].points}
            points = [point for point in panel.points if point.name in others]
            groups = np.array([point.group for point in points], dtype=object)
            one, other = np.triu_indices(len(points), 1)
            same = groups[one] == groups[other] if len(points) else np.zeros(0, dtype=bool)
            one, other = one[same], other[same]
            truth = np.array([point.truth for point in points])
            readings = [
                result.direction * np.array(values)
                for result, values in (
                    (self._results[0], [point.reading for point in points]),
                    (self._results[1], [others[point.name].reading for point in points]),
                )
            ]
            apart = truth[one] - truth[other] if len(points) else np.zeros(0)
            right = [np.sign(r[one] - r[other]) == np.sign(apart) for r in readings] if len(points) else []
            if not right:
                continue
            differ = (right[0] != right[1]) & (apart != 0)
            # The worse network first, so that a row reads in one direction.
            worse = np.where(apart > 0, one, other)[differ]
            better = np.where(apart > 0, other, one)[differ]
            frames.append(
                pd.DataFrame(
                    {
                        "against": panel.title or panel.truth,
                        "worse": [points[place].name for place in worse],
                        "better": [points[place].name for place in better],
                        "apart": np.abs(apart[differ]),
                        "right": np.where(right[0][differ], self.measures[0], self.measures[1]),
                    }
                )
            )
        if not frames:
            return pd.DataFrame(columns=["against", "worse", "better", "apart", "right"])
        return pd.concat(frames).sort_values("apart", ascending=False, kind="stable").reset_index(drop=True)

    @property
    def sentence(self) -> str:
        """What came of it, in a sentence or two."""
        errors = self.scores["sign_error"]
        scored = [name for name in self.measures if errors[name] == errors[name]]
        words = [f"{name} has sign-error {errors[name]:.3f}" for name in scored]
        said = f"{' and '.join(words)}." if words else "Neither has a score."
        if self.p is not None:
            apart = "tells" if self.p < LEVEL else "cannot tell"
            said += f" The evidence {apart} them apart (paired p = {self.p:.2g})."
        counts = self.pairs["right"].value_counts()
        shares = ", ".join(f"{name} is right in {int(counts.get(name, 0))}" for name in self.measures)
        return f"{said} They differ in {len(self.pairs)} orderings of two networks: {shares}."

    def scatter(self) -> Figure:
        """Ranks of both readings against each other, coloured by the truth."""
        from genbench.display.rank_scatter import rank_scatter

        frame = self.readings.dropna()
        first, second = (frame[name].tolist() for name in self.measures)
        return rank_scatter(self.measures[0], first, self.measures[1], second, frame["truth"].tolist())

    def __repr__(self) -> str:
        return f"<{self.sentence}>"

    def _repr_html_(self) -> str:
        from genbench.api.views import comparison_view

        return comparison_view(self)
