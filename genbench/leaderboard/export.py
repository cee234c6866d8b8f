"""The paper kit: a measure's results on a suite as LaTeX, PDF figures, records and BibTeX."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.leaderboard.board import Board, Row
from genbench.leaderboard.papers import PAPERS, paper_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genbench.report.cube_figures import ScatterPanel

__all__ = ["bibtex", "export", "latex_table"]

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def export(board: Board, measure: str, records: Path, target: Path) -> list[Path]:
    """Write the kit into the folder `target`; returns its files."""
    rows = {row.name: row for row in board.rows}
    if measure not in rows:
        raise UserError(f"the board of {board.name} has no row {measure!r}; run it with --records first")
    chosen = [row for row in board.rows if row.name == measure or row.baseline]
    texts = {
        "table.tex": latex_table(board, chosen, measure),
        "papers.bib": bibtex([rows[measure].record["measure"]["paper"], "004"]),
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


def latex_table(board: Board, rows: Sequence[Row], measure: str) -> str:
    """A table for booktabs: the measure and the baselines."""
    lines = [
        r"% needs \usepackage{booktabs}; made by genbench",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{Sign-error of \texttt{{{_latex(measure)}}} on genbench's suite {_latex(board.name)}, "
        r"with its 95\,\% interval over resampled held-out images. 0 is perfect, 0.5 a coin. "
        rf"Rank among {len(board.rows)} measures.}}",
        r"\begin{tabular}{lrcrrr}",
        r"\toprule",
        r"measure & sign-error & 95\,\% interval & robustness & zero-shot & rank \\",
        r"\midrule",
        *(_latex_row(row, bold=row.name == measure) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(row: Row, *, bold: bool) -> str:
    name = rf"\texttt{{{_latex(row.name)}}}"
    name = rf"\textbf{{{name}}}" if bold else name
    score = row.score
    if score is None:
        return rf"{name} & -- & -- & -- & -- & -- \\"
    slices = " & ".join(f"{score.slice_value(part):.3f}" for part in ("robustness", "zero_shot"))
    return rf"{name} & {score.value:.3f} & {score.low:.3f}--{score.high:.3f} & {slices} & {row.rank} \\"


def _latex(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda sign: _SPECIAL[sign[0]], text)


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
    from genbench.report.cube_figures import heat_maps, marginal_figure, reading_scatter

    evidence = board.evidence
    figures: dict[str, Any] = {}
    panels = _panels(board, row)
    if any(panel.points for panel in panels):
        axis = f"{row.name} (higher should mean {row.record['measure']['higher_means']})"
        figures[f"{row.name}.pdf"] = reading_scatter(axis, panels)
    for family, cube in evidence.cubes.items():
        point = evidence.trade_offs[family]
        figures[f"marginals-{family}.pdf"] = marginal_figure(cube, point)
        figures[f"error-{family}.pdf"] = heat_maps(cube, "error_mean", point)
    return figures


def _panels(board: Board, row: Row) -> list[ScatterPanel]:
    from genbench.leaderboard.figures import SLICE_NAMES
    from genbench.report.cube_figures import Point, ScatterPanel
    from genbench.scoring.practical import HEADLINE, SLICES

    truth = board.evidence.truth.record()
    values = {r["subject"]: r["value"] for r in row.record["readings"] if r["value"] is not None}
    worst = row.score.worst if row.score else []
    return [
        ScatterPanel(
            SLICE_NAMES[name],
            "mean held-out error",
            [Point(s, truth[s]["family"], value, truth[s][name][HEADLINE]) for s, value in values.items()],
            [(pair.better, pair.worse) for pair in worst if pair.slice == name],
        )
        for name in SLICES
    ]


def _write_pdf(figure: Figure, path: Path) -> None:
    # No creation date: the same figure gives the same bytes.
    figure.savefig(
        path, format="pdf", metadata={"CreationDate": None, "Creator": "genbench", "Producer": None}
    )
