"""The result of a run as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from genbench._version import __version__
from genbench.display.kept_figures import figures_kept_in, inlined
from genbench.display.names import reading_note
from genbench.display.question_marks import Mark, question_marks, question_titles
from genbench.display.scatter import reading_scatter
from genbench.display.templates import template_environment, write_page
from genbench.engine.cells import Outcome, Status
from genbench.errors import UserError
from genbench.plugin.contract import MeasureInfo
from genbench.report.plain_words import plain_verdict
from genbench.runs.execute import RunResult
from genbench.scoring.board_baselines import Baseline
from genbench.suites.evidence_packs import find_pack
from genbench.suites.pages import Pages, Section
from genbench.suites.result import Headline, MeasureResult, Score
from genbench.suites.suite import Suite

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["check_page_path", "default_page", "repeat_command", "write_run_page"]

_MOST_LAYERS = 20
"""Networks whose layers are shown."""
_MOST_SCATTERS = 8
"""Each takes a tenth of a second; a page about every measure there is does without."""


def default_page(store: Path, suite: Suite) -> Path:
    """Where the page of the last run of a suite lies."""
    return store / "reports" / f"{suite.file_name}.html"


def check_page_path(path: Path) -> None:
    """Complain about a page that could not be written, before anything is computed."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--report {path}: the report is a web page; give a file that ends in .html")
    if not path.parent.is_dir():
        raise UserError(f"--report {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--report {path} cannot be written; choose another place")


def write_run_page(result: RunResult, path: Path) -> None:
    """Write the page, all of it or none."""
    pages = result.evidence.pages(result.judged)
    environment = template_environment("genbench.report", {result.plan.suite.kind: pages.templates})
    with figures_kept_in(result.store / "figures"):
        page = environment.get_template("run.html.j2").render(vars(_content(result, pages)))
    write_page(path, page)


@dataclass(frozen=True)
class _Row:
    """A measure in the table of scores."""

    name: str
    summary: str
    asked: bool
    baseline: bool
    rank: int | None
    score: Score | None
    headline: Headline | None
    marks: list[Mark]
    numbers: list[str]
    statuses: list[tuple[str, int]]
    seconds: float


@dataclass(frozen=True)
class _Reading:
    """A measure on one network."""

    network: str
    note: str
    value: str
    status: str
    fine: bool
    beside: list[str]
    """What is known of the network."""
    seconds: float
    reason: str


@dataclass(frozen=True)
class _Measure:
    """The section of a measure that was asked for."""

    name: str
    about: MeasureInfo
    source: str
    readings: list[_Reading]
    scatters: list[Markup]
    lines: bool
    """Whether the scatter plot has any."""
    score: Score | None
    own: Struct
    """What the kind's own fragment shows."""
    verdict: list[str]
    """Sentences."""
    layers: list[tuple[str, list[tuple[str, str]]]]
    """Network to layer and value, where the measure says what each gave."""
    more_layers: int
    """Networks of which that is not shown."""


@dataclass(frozen=True)
class _Content:
    """The names that the template knows."""

    band: tuple[float, float] | None
    questions: list[tuple[str, str]]
    baselines: Mapping[str, Baseline]
    suite: Suite
    pages: Pages
    networks: int
    columns: list[tuple[str, str]]
    """Heading and what stands below it."""
    counts: int
    """How many of them, the last, say what a headline is made of."""
    rows: list[_Row]
    measures: list[_Measure]
    most_scatters: int
    sections: Sequence[Section]
    provenance: list[tuple[str, str]]
    command: str


def _content(result: RunResult, pages: Pages) -> _Content:
    evidence = result.evidence
    columns = [*evidence.columns, *evidence.counts]
    claims = result.judged.claims
    return _Content(
        band=None if claims is None else claims.band,
        questions=[] if claims is None else question_titles(claims),
        baselines={} if claims is None else claims.baselines,
        suite=result.plan.suite,
        pages=pages,
        networks=len(evidence.networks),
        columns=[(column.heading or column.label, column.about) for column in columns],
        counts=len(evidence.counts),
        rows=[
            _Row(
                name=one.name,
                summary=one.measure.summary,
                asked=one.name in result.plan.asked,
                baseline=one.baseline,
                rank=rank,
                score=one.score,
                headline=result.judged.headline(one),
                marks=question_marks(claims, one.name),
                numbers=[] if one.score is None else [column.text(one.score) for column in columns],
                statuses=one.statuses,
                seconds=one.seconds,
            )
            for rank, one in result.judged.ranked
        ],
        measures=[
            _measure(result, pages, measure, drawn=i < _MOST_SCATTERS)
            for i, measure in enumerate(result.asked)
        ],
        most_scatters=_MOST_SCATTERS,
        sections=pages.run_evidence(),
        provenance=_provenance(result, pages),
        command=repeat_command(result),
    )


def _measure(result: RunResult, pages: Pages, measure: MeasureResult, *, drawn: bool) -> _Measure:
    layers = _layers(measure)
    panels = pages.panels(measure)
    file = measure.source.kind == "file"
    return _Measure(
        name=measure.name,
        about=measure.measure,
        source=measure.source.module if file else str(measure.source),
        readings=[_reading(pages, *reading) for reading in measure.outcomes.items()],
        scatters=_scatters(pages, measure) if drawn and any(panel.points for panel in panels) else [],
        lines=any(panel.wrong for panel in panels),
        score=measure.score,
        own=pages.run_measure(measure),
        verdict=plain_verdict(result, measure),
        layers=layers[:_MOST_LAYERS],
        more_layers=max(0, len(layers) - _MOST_LAYERS),
    )


def _layers(measure: MeasureResult) -> list[tuple[str, list[tuple[str, str]]]]:
    found = []
    for network, outcome in measure.outcomes.items():
        layers = outcome.detail.get("layers")
        if isinstance(layers, Mapping) and layers:
            found.append((network, [(name, f"{value:.6g}") for name, value in layers.items()]))
    return found


def _reading(pages: Pages, network: str, outcome: Outcome) -> _Reading:
    return _Reading(
        network=network,
        note=pages.note(network),
        value="" if outcome.value is None else f"{outcome.value:.6g}",
        status=str(outcome.status),
        fine=outcome.status in (Status.OK, Status.NOT_APPLICABLE),
        beside=[column.text(network) for column in pages.network_columns],
        seconds=outcome.cost.seconds + outcome.cost.shared_seconds,
        reason=reading_note(outcome),
    )


def _scatters(pages: Pages, measure: MeasureResult) -> list[Markup]:
    """One drawing for each kind of truth: beside each other on a desk, below each other on a phone."""
    axis = f"{measure.name} (higher should mean {measure.measure.higher_means})"
    title = f"readings of {measure.name} against the truth"
    return [
        inlined(f"{title}, {panel.title}" if panel.title else title, reading_scatter, axis, [panel])
        for panel in pages.panels(measure)
    ]


def _provenance(result: RunResult, pages: Pages) -> list[tuple[str, str]]:
    suite, pack = result.plan.suite, result.plan.evidence.pack
    return [
        ("suite", suite.title),
        ("about", suite.summary),
        ("evidence pack", pack.version if pack else "none, built from scratch"),
        *pages.provenance(),
        ("genbench", __version__),
        ("store", str(result.store.resolve())),
    ]


def repeat_command(result: RunResult) -> str:
    """The command line that gives this report again."""
    from genbench.plugin.registry import load_registry

    suite = result.plan.suite
    built_in = any(entry.item.path == suite.path for entry in load_registry().suites.values())
    words = ["genbench", "run", "--suite", suite.name if built_in else str(suite.path)]
    words += ["--quick"] if suite.quick else []
    for key, value in suite.changes.items():
        # JSON is TOML for everything that a suite's field can hold.
        words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    pack, shipped = result.plan.evidence.pack, find_pack(suite)
    if pack is None and shipped is not None:
        words.append("--from-scratch")
    elif pack is not None and (shipped is None or shipped.folder != pack.folder):
        words += ["--pack", pack.address or str(pack.folder)]
    asked = result.asked
    if len(asked) > 3 and {one.name for one in asked} >= set(load_registry().measures):
        words.append("--all")
        asked = [one for one in asked if one.source.kind == "file"]
    for one in asked:
        if one.source.kind == "file" and not one.source.module:
            return f"genbench.run({one.name}, suite={suite.name!r})  # where {one.name} was made"
        words += ["--measure", f"{one.source.module}:{one.name}" if one.source.kind == "file" else one.name]
    return shlex.join([*words, "--store", str(result.store)])
