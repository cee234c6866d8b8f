"""An audit for a paper: a LaTeX table, and the figures of 000 as PDF."""

from __future__ import annotations

from pathlib import Path

from genbench.audit.figures import draw_panels, panels_of
from genbench.audit.report import MeasureAudit
from genbench.audit.setups import STRESSORS
from genbench.display.figures import write_pdf
from genbench.errors import UserError

__all__ = ["export_audit"]


def export_audit(audit: MeasureAudit, folder: Path) -> list[Path]:
    """A table for LaTeX with booktabs, and the figures of the stressors as PDF."""
    name = audit.readings.measure.name
    rows = [
        f"{STRESSORS[one.stressor].title.replace('+', '{+}')} & {one.verdict} & "
        f"{'--' if one.number is None else f'{one.number:.3g}'} \\\\"
        for one in audit.verdicts
    ]
    shown = name.replace("_", r"\_")
    table = [
        r"% needs \usepackage{booktabs}; made by genbench",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{Audit of \texttt{{{shown}}} by genbench.}}",
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"stressor & verdict & statistic \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-audit.tex").write_text("\n".join(table) + "\n", encoding="utf-8")
        for one in audit.verdicts:
            panels = panels_of(audit.readings.observed, one.stressor, name)
            if panels:
                write_pdf(draw_panels(panels), folder / f"{name}-{one.stressor}.pdf")
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    return sorted(folder.glob(f"{name}-*"))
