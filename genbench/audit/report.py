"""What an audit says of one measure: a document, a table, and a page with the figures of 000."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from genbench._version import __version__
from genbench.audit.execute import MeasureReadings
from genbench.audit.figures import draw_panels, panels_of
from genbench.audit.setups import STRESSORS, Stressor
from genbench.audit.verdicts import StressorVerdict, judge
from genbench.conformance.kit import CheckResult
from genbench.display.kept_figures import figures_kept_in, inlined
from genbench.display.tables import Table
from genbench.display.templates import template_environment, write_page

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = [
    "AuditDocument",
    "MeasureAudit",
    "audit_of",
    "audit_table",
    "card_table",
    "document_of",
    "pair_of",
    "write_audit_page",
]


@dataclass(frozen=True)
class MeasureAudit:
    """Verdicts of all stressors on one measure."""

    readings: MeasureReadings
    verdicts: Sequence[StressorVerdict]
    card: Sequence[CheckResult]
    """What it does to pairs of networks with one function."""

    @property
    def survived(self) -> int:
        """Stressors under which it is robust."""
        return sum(one.verdict == "robust" for one in self.verdicts)

    @property
    def summary(self) -> str:
        """One line."""
        counts = {
            word: sum(one.verdict == word for one in self.verdicts)
            for word in ("robust", "fragile", "blind", "not applicable")
        }
        said = ", ".join(f"{word} under {count}" for word, count in counts.items() if count)
        return f"{self.readings.measure.name}: {said} of {len(self.verdicts)} stressors"


class VerdictDocument(Struct, frozen=True, kw_only=True):
    """A verdict, as `--json` has it."""

    stressor: str
    verdict: str
    why: str
    number: float | None
    networks: list[str]
    numbers: dict[str, float]
    notes: list[str]


class CardDocument(Struct, frozen=True, kw_only=True):
    """A line of the invariance card."""

    pair: str
    outcome: str
    detail: str


class AuditDocument(Struct, frozen=True, kw_only=True):
    """An audit of one measure, as `--json` has it."""

    measure: str
    version: str
    source: str
    genbench: str
    pack: str
    """The evidence it was audited against; empty for networks trained here."""
    networks: int
    survived: int
    stressors: list[VerdictDocument]
    card: list[CardDocument]
    failed: dict[str, str]


def audit_of(
    readings: MeasureReadings, stressors: Sequence[str], card: Sequence[CheckResult]
) -> MeasureAudit:
    """Judge the readings of a measure."""
    return MeasureAudit(readings, [judge(readings.observed, name) for name in stressors], card)


def document_of(audit: MeasureAudit, pack: str) -> AuditDocument:
    """For `--json`."""
    measure = audit.readings.measure
    return AuditDocument(
        measure=measure.name,
        version=measure.version,
        source=str(audit.readings.source),
        genbench=__version__,
        pack=pack,
        networks=len(audit.readings.observed.truths),
        survived=audit.survived,
        stressors=[
            VerdictDocument(
                stressor=one.stressor,
                verdict=one.verdict,
                why=one.why,
                number=one.number,
                networks=list(one.networks or ()),
                numbers={name: value for name, value in one.numbers.items() if math.isfinite(value)},
                notes=list(one.notes),
            )
            for one in audit.verdicts
        ],
        card=[CardDocument(pair=pair_of(one), outcome=one.outcome, detail=one.detail) for one in audit.card],
        failed=dict(audit.readings.failed),
    )


def audit_table(audit: MeasureAudit) -> Table:
    """Stressors and verdicts."""
    rows = [
        {
            "stressor": STRESSORS[one.stressor].title,
            "verdict": one.verdict,
            "number": "" if one.number is None else f"{one.number:.3g}",
            "why": one.why,
        }
        for one in audit.verdicts
    ]
    return Table(["stressor", "verdict", "number", "why"], rows, audit.readings.measure.name, ["number"])


def card_table(audit: MeasureAudit) -> Table:
    """The invariance card."""
    rows = [{"networks with one function": pair_of(one), "reading": one.detail} for one in audit.card]
    return Table(["networks with one function", "reading"], rows)


def pair_of(check: CheckResult) -> str:
    """What was done to a network, of a check of the conformance kit."""
    return check.name.partition(", ")[2]


_MOST_DRAWN = 10
"""Measures of a page with figures, which take two seconds and a tenth of a megabyte each."""

# -- the page ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Section:
    stressor: Stressor
    verdict: StressorVerdict
    figure: Markup | None
    caption: str
    table: Sequence[Sequence[str]]
    """Rows below a head, for pixels."""


def write_audit_page(
    audits: Sequence[MeasureAudit], path: Path, store: Path, command: str, pack: str
) -> None:
    """Write the page, all of it or none; of many measures, without figures."""
    environment = template_environment("genbench.audit", {})
    with figures_kept_in(store / "figures"):
        page = environment.get_template("audit.html.j2").render(
            audits=[(one, _sections(one, drawn=len(audits) <= _MOST_DRAWN)) for one in audits],
            stressors=list(STRESSORS.values()),
            command=command,
            pack=pack or "none, trained from scratch",
            version=__version__,
            asdict=asdict,
        )
    write_page(path, page)


def _sections(audit: MeasureAudit, *, drawn: bool) -> list[_Section]:
    observed, name = audit.readings.observed, audit.readings.measure.name
    found = []
    for verdict in audit.verdicts:
        panels = panels_of(observed, verdict.stressor, name) if drawn else []
        title = f"{name}: {STRESSORS[verdict.stressor].title}"
        table = _pixel_table(audit) if verdict.stressor == "pixels" else []
        found.append(
            _Section(
                STRESSORS[verdict.stressor],
                verdict,
                inlined(title, draw_panels, panels) if panels else None,
                _CAPTIONS[verdict.stressor],
                table,
            )
        )
    return found


def _pixel_table(audit: MeasureAudit) -> list[list[str]]:
    """Tables 4 and 5 of 000: data by recipe."""
    rows = audit.readings.observed.rows("pixels").rows
    recipes = list(dict.fromkeys((row.recipe, str(row["kept"])) for row in rows))
    table = [["", *(f"{recipe}, {kept}" for recipe, kept in recipes)]]
    for net, pixels in dict.fromkeys((row["net"], row["pixels"]) for row in rows):
        cells = {
            (r.recipe, str(r["kept"])): f"{r.value:.4g} (error {r.error:.3f})"
            for r in rows
            if (r["net"], r["pixels"]) == (net, pixels)
        }
        table.append([f"{net}, pixels {pixels}", *(cells.get(recipe, "–") for recipe in recipes)])
    return table


_CAPTIONS = {
    "slope": "Fig. 1 of 000: the measure (colour) and the test error (ink, dotted) over training examples, "
    "one panel per recipe; marks are seeds. Of the fully connected networks.",
    "drift": "Fig. 2: the measure and the test error over epochs; dashed lines where each run first fits its "
    "training set.",
    "hysteresis": "Three optimizers go on from one network of Adam .01 at the dashed line.",
    "labels": "Fig. 3: the measure (colour) and the test error (ink, dotted) over the share of training "
    "labels drawn anew. 000 corrupts a binarised set; here are ten classes.",
    "tasks": "Fig. 4: the measure and the test error over training examples on tasks of known difficulty.",
    "pixels": "Tables 4 and 5: images as they are, with pixels in one other order, or each in its own.",
    "exp": "Figs. S18 and S19: the measure over the growth of the weights under Exp++ schedules, and the "
    "test error (dashed: 10 %), which does not move: all networks of a panel have one function. They have "
    "layer norms: with batch norms every measure of folded weights stays by construction.",
    "spread": "The measure against the test error, over rates, optimizers, stopping rules and seeds.",
}
