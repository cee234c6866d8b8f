"""The paper kit: a measure's results on a suite as LaTeX, PDF figures, records and BibTeX."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from genbench.audit.paper import export_audit
from genbench.display.figures import write_pdf
from genbench.display.papers import PAPERS, paper_of
from genbench.errors import UserError
from genbench.leaderboard.board import Board, Row, audits_beside
from genbench.suites.evidence import ScoreColumn

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
    audited = [] if rows[measure].audit is None else ["000"]
    texts = {
        "table.tex": latex_table(board, chosen, measure),
        "papers.bib": bibtex([rows[measure].record.measure.paper, *board.pages.papers, *audited]),
    }
    try:
        (target / "records").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
        for row in chosen:
            shutil.copyfile(
                records / board.name / f"{row.name}.json", target / "records" / f"{row.name}.json"
            )
        for name, figure in board.pages.figures(rows[measure].result).items():
            write_pdf(figure, target / name)
        if (audit := rows[measure].audit) is not None:
            export_audit(audit, target)
            shutil.copyfile(
                audits_beside(records) / f"{measure}.json", target / "records" / f"{measure}-audit.json"
            )
    except OSError as problem:
        raise UserError(f"{target} cannot be written: {problem.strerror or problem}") from None
    return sorted(path for path in target.rglob("*") if path.is_file())


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
    entries = [paper.bibtex() for paper in PAPERS.values() if paper in known]
    return "\n".join([*entries, *(f"% the measure's own reference: {other}\n" for other in others)])
