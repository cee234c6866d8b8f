"""Audits as files: documents of measures, the matrix of them, and a paper's table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from genbench.audit.figures import draw_panels, panels_of
from genbench.audit.report import AuditDocument, MeasureAudit, document_of
from genbench.audit.setups import STRESSORS
from genbench.display.figures import write_pdf
from genbench.errors import UserError

__all__ = ["audit_matrix", "export_audit", "read_audits", "write_audits"]

_SIGNS = {"robust": "robust", "fragile": "**fragile**", "blind": "blind", "not applicable": "–"}


def write_audits(audits: Sequence[MeasureAudit], folder: Path, pack: str) -> list[Path]:
    """NAME.json of every measure, and README.md with the matrix of all audits in the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in audits:
            text = msgspec.json.format(msgspec.json.encode(document_of(one, pack)), indent=1)
            (folder / f"{one.readings.measure.name}.json").write_bytes(text + b"\n")
        (folder / "README.md").write_text(audit_matrix(read_audits(folder)), encoding="utf-8")
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    return sorted(folder.iterdir())


def read_audits(folder: Path) -> list[AuditDocument]:
    """All audits in a folder."""
    return [msgspec.json.decode(f.read_bytes(), type=AuditDocument) for f in sorted(folder.glob("*.json"))]


def audit_matrix(audits: Sequence[AuditDocument]) -> str:
    """Measures by stressors, those that survive most first."""
    titles = [one.title for one in STRESSORS.values()]
    lines = [
        "# Audits",
        "",
        "Is a measure fragile? Verdicts of `genbench audit`, one per stressor; `survived` counts `robust`.",
        "",
        f"| measure | survived | {' | '.join(titles)} |",
        f"| --- | --- | {' | '.join('---' for _ in titles)} |",
    ]
    for one in sorted(audits, key=lambda a: (-a.survived, a.measure)):
        verdicts = {v.stressor: _SIGNS[v.verdict] for v in one.stressors}
        cells = " | ".join(verdicts.get(name, "") for name in STRESSORS)
        lines.append(f"| {one.measure} | {one.survived} of {len(one.stressors)} | {cells} |")
    return "\n".join(lines) + "\n"


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
