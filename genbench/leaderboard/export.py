"""The paper kit: a measure's results on a suite as LaTeX, PDF figures, records and BibTeX."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genbench.display.papers import PAPERS, paper_of
from genbench.errors import UserError
from genbench.leaderboard.board import Board, Row
from genbench.suites.evidence_old import PopulationEvidence, ScoreColumn, TestbedEvidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genbench.testbed.cube_figures import ScatterPanel

__all__ = ["bibtex", "export", "latex_table"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"}, "Ψ": r"$\Psi$",
}  # fmt: skip


def export(board: Board, measure: str, records: Path, target: Path) -> list[Path]:
    """Write the kit into the folder `target`; returns its files."""
    rows = {row.name: row for row in board.rows}
    if measure not in rows:
        raise UserError(f"the board of {board.name} has no row {measure!r}; run it with --records first")
    chosen = [row for row in board.rows if row.name == measure or row.baseline]
    texts = {
        "table.tex": latex_table(board, chosen, measure),
        "papers.bib": bibtex([rows[measure].record["measure"]["paper"], *_judged_by(board)]),
    }
    try:
        (target / "records").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
        for row in chosen:
            shutil.copyfile(
                records / board.name / f"{row.name}.json", target / "records" / f"{row.name}.json"
            )
        for name, figure in _figures(board, rows[measure]).items():
            _write_pdf(figure, target / name)
    except OSError as problem:
        raise UserError(f"{target} cannot be written: {problem.strerror or problem}") from None
    return sorted(path for path in target.rglob("*") if path.is_file())


def _judged_by(board: Board) -> list[str]:
    """The papers whose scores the table shows."""
    return ["004"] if isinstance(board.evidence, TestbedEvidence) else ["000", "001", "002", "003"]


def latex_table(board: Board, rows: Sequence[Row], measure: str) -> str:
    """A table for booktabs: the measure and the baselines."""
    columns = board.evidence.columns
    labels = [_latex(column.label) for column in columns]
    heads = ["measure", "sign-error", r"95\,\% interval", *labels, "rank"]
    meaning = " ".join(board.evidence.meaning).replace("95 %", r"95\,\%").replace("½", r"$\frac12$")
    lines = [
        r"% needs \usepackage{booktabs}; made by genbench",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{\texttt{{{_latex(measure)}}} on genbench's suite {_latex(board.name)}. {meaning} "
        rf"Rank among {len(board.rows)} measures.}}",
        rf"\begin{{tabular}}{{lrc{'r' * (len(columns) + 1)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *(_latex_row(row, columns, bold=row.name == measure) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(row: Row, columns: Sequence[ScoreColumn], *, bold: bool) -> str:
    name = rf"\texttt{{{_latex(row.name)}}}"
    name = rf"\textbf{{{name}}}" if bold else name
    score = row.score
    if score is None:
        return " & ".join([name, *["--"] * (len(columns) + 3)]) + r" \\"
    found = [column.number(score) for column in columns]
    numbers = ["--" if value is None else f"{value:.3f}" for value in found]
    cells = [name, f"{score.value:.3f}", f"{score.low:.3f}--{score.high:.3f}", *numbers, str(row.rank)]
    return " & ".join(cells) + r" \\"


def _latex(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}Ψ]", lambda sign: _SPECIAL[sign[0]], text)


def bibtex(references: Sequence[str]) -> str:
    """Entries of the papers that are named, each once; a comment for those that are not among the five."""
    known, others = [], []
    for reference in references:
        paper, place = paper_of(reference)
        if paper is not None:
            known.append(paper)
        elif place:
            others.append(" ".join(place.split()))
    # 004 is the metric that every measure of a testbed is judged by.
    entries = [paper.bibtex() for paper in PAPERS.values() if paper in known]
    return "\n".join([*entries, *(f"% the measure's own reference: {other}\n" for other in others)])


def _figures(board: Board, row: Row) -> dict[str, Figure]:
    from genbench.testbed.cube_figures import reading_scatter

    evidence = board.evidence
    if isinstance(evidence, TestbedEvidence):
        panels, figures = _slice_panels(evidence, row), _cube_figures(evidence)
    else:
        assert isinstance(evidence, PopulationEvidence)
        panels, figures = _gap_panels(evidence, row), _population_figures(board, evidence)
    if any(panel.points for panel in panels):
        axis = f"{row.name} (higher should mean {row.record['measure']['higher_means']})"
        figures[f"{row.name}.pdf"] = reading_scatter(axis, panels)
    return figures


def _cube_figures(evidence: TestbedEvidence) -> dict[str, Figure]:
    from genbench.testbed.cube_figures import heat_maps, marginal_figure

    figures = {}
    for family, cube in evidence.cubes.items():
        point = evidence.trade_offs[family]
        figures[f"marginals-{family}.pdf"] = marginal_figure(cube, point)
        figures[f"error-{family}.pdf"] = heat_maps(cube, "error_mean", point)
    return figures


def _slice_panels(evidence: TestbedEvidence, row: Row) -> list[ScatterPanel]:
    from genbench.leaderboard.figures import SLICE_NAMES
    from genbench.scoring.practical import HEADLINE, SLICES, PracticalScore
    from genbench.testbed.cube_figures import Point, ScatterPanel

    truth = evidence.truth.record()
    values = _values(row)
    worst = row.score.worst if isinstance(row.score, PracticalScore) else []
    return [
        ScatterPanel(
            SLICE_NAMES[name],
            "mean held-out error",
            [Point(s, truth[s]["family"], value, truth[s][name][HEADLINE]) for s, value in values.items()],
            [(pair.better, pair.worse) for pair in worst if pair.slice == name],
        )
        for name in SLICES
    ]


def _gap_panels(evidence: PopulationEvidence, row: Row) -> list[ScatterPanel]:
    from genbench.testbed.cube_figures import Point, ScatterPanel

    rows = evidence.rows
    axis = next(iter(evidence.suite.grid))
    points = [
        Point("", f"{axis}={rows[label][f'hp.{axis}']}", value, rows[label]["gap"])
        for label, value in _values(row).items()
        if rows[label]["converged"]
    ]
    return [ScatterPanel("", "gap: training − held-out accuracy", points, [])]


def _population_figures(board: Board, evidence: PopulationEvidence) -> dict[str, Figure]:
    """The sign-error of all measures by hyperparameter (001), and the Kendall score IID against OOD (002)."""
    from genbench.display.score_figures import iid_ood_scatter, sign_error_cdfs
    from genbench.scoring.population import PopulationScore, scores_frame
    from genbench.scoring.robust import sign_error_environments

    scored = {row.name: row.score for row in board.rows if isinstance(row.score, PopulationScore)}
    frame = scores_frame({name: score.scores for name, score in scored.items()})
    records = evidence.records([row.record for row in board.rows if row.name in scored])
    summary = frame[frame["score"] == "sign_error"]
    kendall = frame[frame["score"] == "kendall"]
    parts = list(dict.fromkeys(summary["part"]))
    targets = list(records.targets)
    figures = {
        "sign-errors.pdf": sign_error_cdfs(sign_error_environments(records), summary, list(scored), parts)
    }
    if len(targets) > 1:
        figures["iid-ood.pdf"] = iid_ood_scatter(kendall, targets[0], targets[1:])
    return figures


def _values(row: Row) -> dict[str, float]:
    return {r["subject"]: r["value"] for r in row.record["readings"] if r["value"] is not None}


def _write_pdf(figure: Figure, path: Path) -> None:
    # No creation date: the same figure gives the same bytes.
    figure.savefig(
        path, format="pdf", metadata={"CreationDate": None, "Creator": "genbench", "Producer": None}
    )
