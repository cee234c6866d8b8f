"""The result of a run as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench import __version__
from genbench.display.figures import inline_svg
from genbench.engine.cells import Outcome, Status
from genbench.errors import UserError
from genbench.run.runs import FamilyEvidence, MeasureReport, RunReport
from genbench.scoring.population import SHOWN, PopulationScore
from genbench.scoring.practical import HEADLINE, SLICES, PracticalScore, WorstPair
from genbench.scoring.ranking import tied_ranks
from genbench.scoring.sign_error import SignError
from genbench.suites import Suite
from genbench.testbed.cube_figures import (
    Point,
    ScatterPanel,
    heat_maps,
    marginal_figure,
    reading_scatter,
)
from genbench.testbed.cube_tables import short_count, short_name

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["check_page_path", "default_page", "repeat_command", "write_run_page"]

_MOST_SCATTERS = 8
"""Each takes a tenth of a second; a page about every measure there is does without."""
_MOST_WORST = 10
_SLICE_NAMES = {"robustness": "robustness", "zero_shot": "zero-shot"}


def default_page(store: Path, suite: Suite) -> Path:
    """Where the page of the last run of a suite lies."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in suite.name)
    return store / "reports" / f"{name}{'--quick' if suite.quick else ''}.html"


def check_page_path(path: Path) -> None:
    """Complain about a page that could not be written, before anything is computed."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--report {path}: the report is a web page; give a file that ends in .html")
    if not path.parent.is_dir():
        raise UserError(f"--report {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--report {path} cannot be written; choose another place")


def write_run_page(report: RunReport, path: Path) -> None:
    """Write the page, all of it or none."""
    page = _render(report)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(page, encoding="utf-8")
        draft.replace(path)
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None
    finally:
        draft.unlink(missing_ok=True)


def _render(report: RunReport) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("genbench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("run.html.j2").render(_content(report))


def _content(report: RunReport) -> dict[str, Any]:
    asked = [m for m in report.measures if m.measure.name in report.plan.asked]
    return {
        "suite": report.plan.suite,
        "testbed": bool(report.families),
        "networks": len(report.plan.evidence.subjects),
        "population": report.table is not None and report.table.board is not None,
        "columns": _columns(report),
        "rows": _headline(report),
        "measures": [_measure(report, m, drawn=i < _MOST_SCATTERS) for i, m in enumerate(asked)],
        "most_scatters": _MOST_SCATTERS,
        "families": [_family(name, family) for name, family in report.families.items()],
        "provenance": _provenance(report),
        "command": repeat_command(report),
    }


# -- every measure -----------------------------------------------------------------------------------


def _headline(report: RunReport) -> list[dict[str, Any]]:
    """One row per measure, best first."""
    ranks = _ranks(report)
    rows = []
    for measure, rank in zip(report.measures, ranks, strict=True):
        statuses = Counter(str(outcome.status) for outcome in measure.outcomes.values())
        rows.append(
            {
                "name": measure.measure.name,
                "summary": measure.measure.summary,
                "asked": measure.measure.name in report.plan.asked,
                "rank": rank,
                "score": measure.score,
                "numbers": _numbers(measure.score),
                "statuses": statuses.most_common(),
                "seconds": sum(map(_seconds, measure.outcomes.values())),
            }
        )
    return sorted(
        rows, key=lambda row: (row["score"] is None, row["score"] and row["score"].value, row["name"])
    )


def _ranks(report: RunReport) -> list[int | None]:
    if report.families:
        return tied_ranks([m.score if isinstance(m.score, PracticalScore) else None for m in report.measures])
    return tied_ranks([m.score if isinstance(m.score, PopulationScore) else None for m in report.measures])


def _columns(report: RunReport) -> list[tuple[str, str]]:
    """Heading and meaning of the numbers behind the interval; as `_numbers`."""
    if report.families:
        return [
            ("noise-aware", "Pairs weigh by how surely the truth orders them"),
            ("robust-ness", "Degraded images, no unseen classes"),
            ("zero-shot", "Clean images, more and more unseen classes"),
            ("pairs", "Pairs of networks"),
            ("ties", "Pairs with equal readings; each counts ½"),
            ("drop-ped", "Networks without a reading"),
        ]
    if report.table is not None and report.table.board is not None:
        return [
            *((column.label, column.about) for column in SHOWN),
            ("environ-ments", "Pairs of combinations that the held-out images order surely"),
            ("drop-ped", "Networks without a reading"),
        ]
    return [("pairs", "Pairs of networks"), ("drop-ped", "Networks without a reading")]


def _numbers(score: SignError | PracticalScore | PopulationScore | None) -> list[str]:
    if isinstance(score, PracticalScore):
        # Readings tie alike in both slices.
        ties = sum(part.ties for part in score.parts if part.statistic == HEADLINE) // len(SLICES)
        slices = [f"{score.slice_value(name):.3f}" for name in SLICES]
        aware = "–" if score.noise_aware is None else f"{score.noise_aware:.3f}"
        return [aware, *slices, str(score.pairs), str(ties), str(score.dropped)]
    if isinstance(score, PopulationScore):
        found = [score.shown(column).get("value") for column in SHOWN]
        texts = ["–" if value is None else f"{value:.3f}" for value in found]
        return [*texts, f"{score.environments} of {score.available}", str(score.dropped)]
    return [] if score is None else [str(score.pairs), str(score.dropped)]


def _seconds(outcome: Outcome) -> float:
    return outcome.cost.seconds + outcome.cost.shared_seconds


# -- one measure -------------------------------------------------------------------------------------


def _measure(report: RunReport, measure: MeasureReport, *, drawn: bool) -> dict[str, Any]:
    score = measure.score
    practical = score if isinstance(score, PracticalScore) else None
    panels = _testbed_panels(report, measure, practical) if report.families else _gap_panel(report, measure)
    return {
        "name": measure.measure.name,
        "about": measure.measure,
        "source": measure.source.module if measure.source.kind == "file" else str(measure.source),
        "readings": [_reading(report, subject, o) for subject, o in measure.outcomes.items()],
        "scatter": _scatter(measure, panels) if drawn and any(panel.points for panel in panels) else None,
        "lines": any(panel.wrong for panel in panels),
        "parts": practical.parts if practical else [],
        "wrong": len(practical.worst) if practical else 0,
        "judgements": sum(p.pairs for p in practical.parts if p.statistic == HEADLINE) if practical else 0,
        "worst": [_explained(measure, pair) for pair in practical.worst[:_MOST_WORST]] if practical else [],
        "score": score,
        "environments": score.worst if isinstance(score, PopulationScore) else [],
        "axes": score.by_hyperparameter() if isinstance(score, PopulationScore) else [],
    }


def _reading(report: RunReport, subject: str, outcome: Outcome) -> dict[str, Any]:
    truth = report.evidence[subject]
    return {
        "network": subject,
        "note": "" if truth.get("converged", True) else "unconverged, not scored",
        "weights": short_count(truth["weights"]) if "weights" in truth else "",
        "value": "" if outcome.value is None else f"{outcome.value:.6g}",
        "status": str(outcome.status),
        "fine": outcome.status in (Status.OK, Status.NOT_APPLICABLE),
        "truth": [truth[name][HEADLINE] for name in SLICES] if report.families else [truth.get("gap")],
        "seconds": _seconds(outcome),
        "reason": outcome.reason,
    }


def _testbed_panels(
    report: RunReport, measure: MeasureReport, score: PracticalScore | None
) -> list[ScatterPanel]:
    values = _values(measure)
    return [
        ScatterPanel(
            title=_SLICE_NAMES[name],
            truth="mean held-out error",
            points=[
                Point(s, report.evidence[s]["family"], value, report.evidence[s][name][HEADLINE])
                for s, value in values.items()
            ],
            wrong=[(p.better, p.worse) for p in (score.worst if score else []) if p.slice == name],
        )
        for name in SLICES
    ]


def _gap_panel(report: RunReport, measure: MeasureReport) -> list[ScatterPanel]:
    """Of a population: the networks that are scored, and the wrong pairs with the largest gaps between."""
    direction = 1 if measure.measure.higher_means == "worse" else -1
    points = [
        Point(subject, "", value, report.evidence[subject]["gap"])
        for subject, value in _values(measure).items()
        if report.evidence[subject].get("converged", True) and "gap" in report.evidence[subject]
    ]
    wrong = [
        (abs(one.truth - other.truth), one.name, other.name)
        for i, one in enumerate(points)
        for other in points[:i]
        if direction * (one.reading - other.reading) * (one.truth - other.truth) < 0
    ]
    pairs = [(one, other) for _, one, other in sorted(wrong, reverse=True)]
    return [ScatterPanel("", "gap: training − held-out accuracy", points, pairs)]


def _values(measure: MeasureReport) -> dict[str, float]:
    return {subject: o.value for subject, o in measure.outcomes.items() if o.value is not None}


def _scatter(measure: MeasureReport, panels: Sequence[ScatterPanel]) -> Markup:
    name = measure.measure.name
    axis = f"{name} (higher should mean {measure.measure.higher_means})"
    return _inlined(reading_scatter(axis, panels), f"readings of {name} against the truth")


def _inlined(figure: Any, description: str) -> Markup:
    """Marked as HTML: matplotlib escapes what it writes, and nothing else is in it."""
    from markupsafe import Markup

    return Markup(inline_svg(figure, description))


def _explained(measure: MeasureReport, pair: WorstPair) -> dict[str, str]:
    """Why a pair counts against the measure, in a sentence."""
    direction = 1.0 if measure.measure.higher_means == "worse" else -1.0
    better, worse = short_name(pair.better), short_name(pair.worse)
    readings = [f"{direction * value:.4g}" for value in (pair.reading_better, pair.reading_worse)]
    if readings[0] == readings[1]:  # they differ further behind the point
        readings = [f"{direction * value:.10g}" for value in (pair.reading_better, pair.reading_worse)]
    return {
        "family": pair.family,
        "slice": _SLICE_NAMES[pair.slice],
        "sentence": (
            f"{better} errs less than {worse} ({pair.error_better:.3f} against {pair.error_worse:.3f}), but "
            f"{measure.measure.name} reads {readings[0]} for {better} and {readings[1]} for {worse}, which "
            f"says the opposite."
        ),
        "certainty": f"{pair.certainty:.1f}",
    }


# -- one family --------------------------------------------------------------------------------------


def _family(name: str, evidence: FamilyEvidence) -> dict[str, Any]:
    cube, point = evidence.cube, evidence.trade_off
    maps = {"error_mean": "mean error", "kappa_mean": "mean kappa"}
    return {
        "name": name,
        "models": [
            f"{short_name(str(model))} ({short_count(float(count))})"
            for model, count in zip(cube["model"].values, cube["weights"].values, strict=True)
        ],
        "marginals": _inlined(marginal_figure(cube, point), f"marginals of {name}"),
        "heat_maps": [
            (label, _inlined(heat_maps(cube, statistic, point), f"{label} of {name}"))
            for statistic, label in maps.items()
        ],
        "trade_off": _trade_off_rows(point),
        "certified": point["certified"],
    }


def _trade_off_rows(point: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of the paper's Tables 2 and 3, then how far they can be trusted."""
    rows = [
        ("generalization bound", f"{point['generalization_bound']:.3f}"),
        ("diversity bound", f"{point['diversity_bound']:.3f}"),
        ("SSIM, lower bound", f"{point['ssim']:.3f}"),
        ("zero-shot share, upper bound", f"{point['zero_shot']:.3f}"),
        ("model size", f"{short_count(point['model_size'])} weights"),
        ("objective", f"{point['objective']:.6f} ({point['scales']})"),
        ("gap to brute force", f"{point['gap']:+.1e}"),
        ("solver", point["solver"]),
    ]
    return [*rows, ("why not GEKKO", point["reason"])] if point["reason"] else rows


# -- provenance --------------------------------------------------------------------------------------


def _provenance(report: RunReport) -> list[tuple[str, str]]:
    evidence, suite = report.plan.evidence, report.plan.suite
    rows = [("suite", suite.title), ("about", suite.summary)]
    rows.append(("evidence pack", evidence.pack.version if evidence.pack else "none, built from scratch"))
    for name, family in report.families.items():
        rows.append(
            (f"data of {name}", f"{family.cube.attrs.get('dataset', '')}, kappa {family.cube.attrs['kappa']}")
        )
    return [*rows, ("genbench", __version__), ("store", str(report.store.resolve()))]


def repeat_command(report: RunReport) -> str:
    """The command line that gives this report again."""
    from genbench.packs.pack import find_pack
    from genbench.plugin.registry import load_registry

    suite = report.plan.suite
    built_in = any(entry.item.path == suite.path for entry in load_registry().suites.values())
    words = ["genbench", "run", "--suite", suite.name if built_in else str(suite.path)]
    words += ["--quick"] if suite.quick else []
    for key, value in suite.changes.items():
        # JSON is TOML for everything that a suite's field can hold.
        words += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    pack, shipped = report.plan.evidence.pack, find_pack(suite)
    if pack is None and shipped is not None:
        words.append("--from-scratch")
    elif pack is not None and (shipped is None or shipped.folder != pack.folder):
        words += ["--pack", str(pack.folder)]
    asked = [m for m in report.measures if m.measure.name in report.plan.asked]
    if len(asked) > 3 and {m.measure.name for m in asked} >= set(load_registry().measures):
        words.append("--all")
        asked = [m for m in asked if m.source.kind == "file"]
    for measure in asked:
        by_file = measure.source.kind == "file"
        name = measure.measure.name
        words += ["--measure", f"{measure.source.module}:{name}" if by_file else name]
    return shlex.join([*words, "--store", str(report.store)])
